"""Runs functions at the same time, each in a thread of its own."""

import threading


def side_by_side(*functions):
    """Returns when all are done; fails if one takes longer than two minutes."""
    callers = [threading.Thread(target=function) for function in functions]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(120)
        assert not caller.is_alive()
