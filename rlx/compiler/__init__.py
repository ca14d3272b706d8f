"""From a graph to an executable: the steps of a compile, what they decided on disk, and the choice of a device."""
