# Part of webgpu_hot.pyx: the calls that are made most often.

cdef class Entry:
    """The compiled calls of an executable: ``run_slots`` and ``run_dict``.

    Args:
        views: The arrays that they read and return.
        failed: Is called with a runner that failed, and raises.
        slow: Is called with the arguments that need conversion, or where no runner is set; makes the whole run.
    """

    cdef object _lock, _failed, _slow
    cdef rlx_try_lock* _lock_state
    cdef HostViews _views
    cdef tuple _names, _positions, _slots, _sources
    cdef Py_ssize_t _version
    cdef Runner _on_arguments, _on_views
    cdef object __weakref__

    def __cinit__(self, HostViews views not None, failed, slow):
        self._views, self._failed, self._slow = views, failed, slow
        self._positions, self._sources, self._version = (), (), -1

    def compiled(self, lock, tuple names):
        """Returns ``run_slots`` and ``run_dict``, which hold a lock while they run.

        Args:
            lock: A ``rlx._ext.locks.TryLock``.
            names: Names of all inputs.
        """
        cdef uintptr_t address = lock.address
        self._lock, self._lock_state, self._names = lock, <rlx_try_lock*>address, names
        return self.run_slots, self.run_dict

    @property
    def served(self):
        """The address of the calls that ``SizedRuns`` makes."""
        return <uintptr_t>&_served

    def set_runners(self, Runner on_arguments, Runner on_views, tuple positions, tuple sources=()):
        """Sets the submissions of runs.

        Args:
            on_arguments: The compiled runner of a run on arguments; None to run through Python.
            on_views: The compiled runner of a run on ``input_views``; None to run through Python.
            positions: The numbers of the inputs that take an argument.
            sources: Arguments that are no more than a shape: ``(index, place, buffer, offset)``. Each run asks ``place()``
                for the buffer and the offset of the value, and copies it to this buffer and offset.
        """
        self._on_arguments, self._on_views = on_arguments, on_views
        self._positions, self._sources, self._version = positions, sources, -1
        if sources and on_arguments is not None:
            on_arguments.set_targets([(buffer, offset) for _, _, buffer, offset in sources])

    # A plain method of C gets its arguments in one tuple. Cython's own functions make a second tuple at each call.
    @cython.binding(False)
    @cython.embedsignature.format("clinic")
    def run_slots(self, *arrays):
        """Runs the graph and returns its outputs: the same read-only arrays at every call.

        ``run_slots(*arrays)`` takes one array per input, in the order of declaration. ``run_slots()``
        computes from ``input_views``, where arguments never show up. The next run overwrites the outputs: copy
        what has to stay.

        Raises:
            InputError: A wrong count or shape, a dtype or value that does not convert, or the graph is closed.
            BusyError: Another call uses the graph.
        """
        if not rlx_acquire(self._lock_state):
            self._lock.refuse()
        try:
            self._run(arrays)
        finally:
            rlx_release(self._lock_state, 0)
        return self._views.output_views

    @cython.binding(False)
    def run_dict(self, inputs):
        """Runs named inputs that need no conversion, and returns the outputs in arrays of their own.

        Returns:
            None for inputs that need conversion or do not fit, and where a run is several submissions; nothing has
            run then.

        Raises:
            BusyError: Another call uses the graph.
        """
        cdef tuple arrays
        if not rlx_acquire(self._lock_state):
            self._lock.refuse()
        try:
            arrays = self._named(inputs, self._names)
            return self._run_fresh(arrays) if arrays is not None and self._meets(arrays, False) else None
        finally:
            rlx_release(self._lock_state, 0)

    cdef tuple _named(self, inputs, tuple names):
        """The values of the arguments in their order; None where ``inputs`` is not a dict of just these."""
        if type(inputs) is not dict or len(inputs) != len(self._positions):
            return None
        return tuple([(<dict>inputs).get(names[index]) for index in self._positions])

    cdef bint _meets(self, tuple arrays, bint other) except -1:
        """Returns whether a compiled run takes arrays, also after it took their sizes."""
        if self._on_arguments is None:
            return False
        self._take_slots()
        return (not other and _fit(arrays, self._slots)) or self._views._meets(arrays, self._positions)

    cdef int _take_slots(self) except -1:
        """Looks where the arguments go, for the sizes of now."""
        if self._version != self._views.version:
            self._slots = tuple([self._views.argument_slots[index] for index in self._positions])
            self._version = self._views.version
        return 0

    cdef bint _run_fitting(self, tuple arrays) except -1:
        """Runs on arguments that are just like their slots, or on the input views; returns whether a compiled run does."""
        cdef Runner runner = self._on_arguments if len(arrays) else self._on_views
        self._take_slots()
        if runner is None or (len(arrays) and not _fit(arrays, self._slots)):
            return False
        self._start(runner, arrays)
        return True

    cdef int _run(self, tuple arrays) except -1:
        """Runs on arguments, or on the input views."""
        if not self._run_fitting(arrays):
            self._slow(arrays)
        return 0

    cdef list _run_fresh(self, tuple arrays):
        """Runs on arguments that fit, and returns the outputs in arrays of their own."""
        self._take_slots()
        self._start(self._on_arguments, arrays)
        return [cnp.PyArray_NewCopy(<cnp.ndarray>view, cnp.NPY_CORDER) for view in self._views.output_views]

    cdef bint _place(self, tuple arrays) except -1:
        """Copies arguments to their slots, after it took their sizes; returns whether they fit."""
        cdef Py_ssize_t index
        if len(self._sources) or not self._meets(arrays, False):
            return False
        self._take_slots()
        for index in range(len(arrays)):
            _copy(<cnp.ndarray>arrays[index], <cnp.ndarray>self._slots[index])
        return True

    cdef int _start(self, Runner runner, tuple arrays) except -1:
        """Copies arguments that fit to their slots, and runs."""
        cdef Py_ssize_t index, row = 0, rows = len(self._sources)
        self._views.settle()
        for index in range(len(arrays)):
            if row < rows and self._sources[row][0] == index:
                buffer, offset = self._sources[row][1]()
                runner.set_source(row, buffer, offset, cnp.PyArray_NBYTES(<cnp.ndarray>self._slots[index]))
                row += 1
                continue
            _copy(<cnp.ndarray>arrays[index], <cnp.ndarray>self._slots[index])
        if runner.run_gated() != RLX_GPU_OK:
            self._failed(runner)
        return 0


cdef bint _entry_meets(object entry, tuple arrays, bint other) except -1:
    return (<Entry>entry)._meets(arrays, other)


cdef tuple _entry_named(object entry, object inputs, tuple names):
    return (<Entry>entry)._named(inputs, names)


cdef bint _entry_run_fitting(object entry, tuple arrays) except -1:
    return (<Entry>entry)._run_fitting(arrays)


cdef int _entry_run(object entry, tuple arrays) except -1:
    return (<Entry>entry)._run(arrays)


cdef bint _entry_place(object entry, tuple arrays) except -1:
    return (<Entry>entry)._place(arrays)


cdef list _entry_run_fresh(object entry, tuple arrays):
    return (<Entry>entry)._run_fresh(arrays)


cdef tuple _entry_outputs(object entry):
    return (<Entry>entry)._views.output_views


cdef rlx_served _served = rlx_served(
    _entry_meets, _entry_named, _entry_run_fitting, _entry_run, _entry_place, _entry_run_fresh, _entry_outputs
)
