"""Sliding windows: convolutions, transposed convolutions and pools."""
