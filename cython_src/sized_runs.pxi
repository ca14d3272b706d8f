# Part of program.pyx: the calls that are made most often, of a graph with dims.

@cython.final
cdef class SizedRuns:
    """Runs of the program of their sizes. Other sizes that programs of ranges serve cost no Python.

    Args:
        lock: A ``rlx._ext.locks.TryLock``, which is held while a run is under way.
        names: Names of all inputs.
        choose: Takes arguments of ``run_slots``, has ``use`` called with the program of their sizes, and returns them as
            arrays.
    """

    cdef readonly object now
    cdef const rlx_served* _calls
    cdef tuple _others
    cdef object _lock
    cdef rlx_try_lock* _lock_state
    cdef tuple _names
    cdef object _choose
    cdef int _before  # STALE: Python has to look after the program before the next run
    cdef object __weakref__

    def __cinit__(self, lock, tuple names, choose):
        cdef uintptr_t address = lock.address
        self._lock, self._lock_state = lock, <rlx_try_lock*>address
        self._names, self._choose = names, choose
        self._before, self._others = STALE, ()

    def use(self, program, others):
        """Has later runs begin with this program, and look among others of its kind for other sizes.

        The caller holds the lock.
        """
        cdef uintptr_t address = program.served
        self._calls = <const rlx_served*>address
        self.now, self._others = program, tuple(others)
        rlx_clear_bits(&self._before, STALE)

    def stale(self):
        """Has the next run take the general way. Any thread may say so, also during a run."""
        rlx_set_bits(&self._before, STALE)

    cdef bint _meets(self, tuple arrays, bint other) except -1:
        """Returns whether a program takes arrays, and uses it. ``other``: no program has their sizes now."""
        if self._calls.meets(self.now, arrays, other):
            return True
        for program in self._others:
            if self._calls.meets(program, arrays, other):
                self.now = program
                return True
        return False

    cdef bint _run_fitting(self, tuple arrays) except -1:
        """Runs the program that has the sizes of arrays now; returns whether one has."""
        if self._calls.run_fitting(self.now, arrays):
            return True
        for program in self._others:
            if self._calls.run_fitting(program, arrays):
                self.now = program
                return True
        return False

    def place(self, tuple arrays):
        """Copies arrays to the memory that the next submitted run uploads; returns whether they fit a program.

        The caller holds the lock.
        """
        if rlx_bits(&self._before):
            return False
        if self._calls.place(self.now, arrays):
            return True
        for program in self._others:
            if self._calls.place(program, arrays):
                self.now = program
                return True
        return False

    @cython.binding(False)
    @cython.embedsignature.format("clinic")
    def run_slots_locked(self, *arrays):
        """See ``Program.run_slots_locked``. Runs with arguments compute for the sizes of these."""
        if not rlx_acquire(self._lock_state):
            self._lock.refuse()
        try:
            if rlx_bits(&self._before):
                arrays = self._choose(arrays)
            elif len(arrays):
                if self._run_fitting(arrays):
                    return self._calls.outputs(self.now)
                if not self._meets(arrays, True):
                    arrays = self._choose(arrays)
            self._calls.run(self.now, arrays)
            return self._calls.outputs(self.now)
        finally:
            rlx_release(self._lock_state, 0)

    @cython.binding(False)
    def run_dict(self, inputs):
        """See ``Program.run_dict``."""
        if not rlx_acquire(self._lock_state):
            self._lock.refuse()
        try:
            if rlx_bits(&self._before):
                return None
            arrays = self._calls.named(self.now, inputs, self._names)
            if arrays is None or not self._meets(arrays, False):
                return None
            return self._calls.run_fresh(self.now, arrays)
        finally:
            rlx_release(self._lock_state, 0)


cdef bint _program_meets(object program, tuple arrays, bint other) except -1:
    return (<Program>program)._meets(arrays, other)


cdef tuple _program_named(object program, object inputs, tuple names):
    return (<Program>program)._named(inputs, names)


cdef bint _program_run_fitting(object program, tuple arrays) except -1:
    return (<Program>program)._run_fitting(arrays)


cdef int _program_run(object program, tuple arrays) except -1:
    return (<Program>program)._run(arrays)


cdef bint _program_place(object program, tuple arrays) except -1:
    return False  # its runs are over when they are submitted


cdef list _program_run_fresh(object program, tuple arrays):
    return (<Program>program)._run_fresh(arrays)


cdef tuple _program_outputs(object program):
    return (<Program>program)._output_views


cdef rlx_served _served = rlx_served(
    _program_meets, _program_named, _program_run_fitting, _program_run, _program_place, _program_run_fresh,
    _program_outputs,
)
