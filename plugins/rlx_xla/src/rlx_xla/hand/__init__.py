"""What is written by hand for XLA, by family of operations: where the reference does not trace, or is slow."""
