"""Graphs that run on fewer elements than they were made for: what is padded is masked where it would be seen."""
