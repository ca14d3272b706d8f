"""Elements moved, not computed: views, copies, gather, scatter, ranges."""
