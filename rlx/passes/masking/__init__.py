"""Graphs that run on fewer elements than they were made for: padding is masked wherever results would see it."""
