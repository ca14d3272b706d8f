"""The ground floor: types, graph, verifier, printer, and the records a compiled graph is made of."""
