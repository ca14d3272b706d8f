"""One result for each element: the table of functions, activations, casts, random numbers."""
