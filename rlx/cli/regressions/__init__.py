"""The commands of ``rlx regress``, a module each: ``HELP``, ``add_arguments`` and ``run``."""
