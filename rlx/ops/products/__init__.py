"""Matrix products of floats, of bytes and by packed weights: records, layouts for the CPU, tilings for GPUs."""
