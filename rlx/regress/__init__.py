"""``rlx regress``: did a driver, a GPU or a release change a result or a speed?"""
