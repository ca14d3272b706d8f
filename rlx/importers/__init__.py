"""Readers of model files: each turns a file into a graph, and nothing of the file runs."""
