"""Model files of other projects: what they hold, read and checked."""
