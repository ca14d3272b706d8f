"""Resizing by interpolation."""
