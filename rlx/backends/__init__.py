"""Ways of running a graph: the protocol, and one folder or file each."""
