"""The typed interface between Python and the compiled CPU kernels: one signature for each kernel.

``setup.py`` writes the C structs of the signatures (``header``); the schedule takes scratch memory by them, and the
linker checks every call against them and writes its parameters (``calls``). A kernel's text in ``cython_src/kernels``
and its signature here are of the same family.
"""
