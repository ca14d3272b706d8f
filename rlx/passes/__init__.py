"""Graph to graph, and graph to schedule: small, pure, named steps."""
