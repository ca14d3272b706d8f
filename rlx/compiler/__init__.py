"""From a graph to an executable: the steps of a compile, its decisions on disk, and the choice of a device."""
