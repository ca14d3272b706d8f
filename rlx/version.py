"""The version of rlx, in a module of its own so that every floor can read it."""

__version__ = "0.2.0"
