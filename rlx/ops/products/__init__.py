"""Products of matrices, of floats, bytes and packed weights: records, layouts of the CPU, tiles of the GPU."""
