"""The parts of script/portable: a file for everything that it builds, and one for each system that it runs on."""
