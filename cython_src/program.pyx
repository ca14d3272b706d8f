# The CPU's hot path: a flat program of kernel calls, run in one loop without the GIL.
"""The program of an executable on the CPU: kernel calls on fixed addresses, and the loop that makes them."""

from libc.stdint cimport INT64_MAX, int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

cimport cython
cimport numpy as cnp
import numpy as np

from _types cimport (
    RLX_CUSTOM_ERROR,
    RLX_INPUTS,
    RLX_JUMP,
    RLX_OK,
    RLX_OUTPUTS,
    RLX_PYTHON_ERROR,
    RLX_FLOATS_IEEE,
    RLX_FLOATS_RESULTS,
    rlx_call,
    rlx_floats,
    rlx_floats_enter,
    rlx_floats_set,
    rlx_jump_target,
    rlx_kernel,
    rlx_python,
    rlx_split,
)

from rlx.backends.arguments import as_input, check_slots, contiguous
from rlx.errors import GraphError, InputError, RlxError, SizesError, describe

cnp.import_array()

cdef extern from "clock.h" nogil:
    int64_t rlx_clock_ns()

cdef extern from "try_lock.h" nogil:
    ctypedef struct rlx_try_lock:
        pass
    bint rlx_acquire(rlx_try_lock* owner)
    void rlx_release(rlx_try_lock* owner, uintptr_t to)
    int rlx_bits(const int* bits)
    void rlx_set_bits(int* bits, int some)
    void rlx_clear_bits(int* bits, int some)

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1
    cnp.PyObject* PyDict_GetItemWithError(object, object) except? NULL

include "served.pxi"
include "sizes.pxi"
include "calls.pxi"
include "fresh.pxi"

# While a loop of the graph runs, signals are handled between two of its trips: when at least SIGNAL_NS
# nanoseconds have passed since the last time, which is looked up on the clock every SIGNAL_TRIPS trips.
cdef enum:
    SIGNAL_NS = 5_000_000
    SIGNAL_TRIPS = 4
    TOO_MANY_TRIPS = -1

# Work before the next run: link the calls again, or forget outputs that stand outside of the arena.
cdef enum:
    STALE = 1
    OUTSIDE = 2


def clock_ns():
    """The clock of ``Program.run_timed``: nanoseconds from some start, only ever forward."""
    return rlx_clock_ns()


cdef struct rlx_feed:
    Py_ssize_t output
    void* target
    const void* source
    Py_ssize_t nbytes


cdef struct rlx_input:
    Py_ssize_t index
    void* slot  # its memory in the arena; NULL for an empty input
    void* view
    Py_ssize_t nbytes
    const cnp.npy_intp* dims
    int rank
    int type
    bint is_state  # calls write to its slot, which keeps a resident's value


include "program_inputs.pxi"
include "program_outputs.pxi"
include "resizing.pxi"


@cython.final
cdef class Program(SizeBinder):
    """The calls of a run, with the arrays that they read and write.

    The caller of a method sees to it that no other thread calls one at the same time. ``run_slots_locked`` and
    ``run_dict`` do so themselves, and ``stale`` may be called by any thread. Methods share state with a run under way, so
    without the GIL each method is a critical section of its program, which a run leaves while it makes its calls.

    ``run_fresh`` writes large outputs to the arrays that it returns; ``settle_outputs`` copies them to the arena.

    Args:
        calls: The calls.
        input_views: Arrays that hold the inputs of a run without arguments.
        slots: Addresses of the inputs in the arena; 0 for empty ones.
        output_views: Arrays that ``run_slots`` returns.
        arena: The memory that calls write to.
        inputs_end: Bytes at its beginning that hold the inputs and nothing else. No call writes there.
        states: Positions of the inputs that calls write. Their slots are outside of the arena.
        link: Returns the calls anew, when weights stand elsewhere than before (see ``stale``).
        most_trips: Trips that the loops of a run make at most, all together; None for no bound.
        pool: Addresses of ``rlx_parallel_run`` and of ``rlx_parallel_copy``, and the threads that copy.
        allocate: Makes memory of so many bytes.
        flush: Whether arithmetic gives 0 in place of subnormal numbers (floats.h).
    """

    cdef rlx_runner _runner
    cdef rlx_call* _calls
    cdef Py_ssize_t _count
    cdef rlx_floats _floats  # how calls treat subnormal numbers
    cdef rlx_floats _callers  # how the thread that runs them treats them otherwise
    cdef int64_t _most_trips
    cdef object _link
    cdef object _lock
    cdef rlx_try_lock* _lock_state
    cdef tuple _names
    cdef object __weakref__

    def __cinit__(
        self, Calls calls, tuple input_views, slots, tuple output_views, cnp.ndarray arena,
        Py_ssize_t inputs_end, tuple states, link, most_trips, tuple pool, allocate, bint flush,
    ):
        cdef Py_ssize_t at, count = len(input_views)
        cdef uintptr_t runner = pool[0], copier = pool[1]
        self._runner, self._copier = <rlx_runner><void*>runner, <rlx_copier><void*>copier
        self._threads = pool[2]
        self._allocate = allocate
        self._floats = RLX_FLOATS_IEEE | (RLX_FLOATS_RESULTS if flush else 0)
        self._blocks = [None] * len(output_views)
        self._input_views = input_views
        self._output_views = output_views
        self._arena = <char*>cnp.PyArray_DATA(arena)
        self._arena_end = self._arena + cnp.PyArray_NBYTES(arena)
        self._inputs_end = self._arena + inputs_end
        self._states, self._link = states, link
        self._most_trips = INT64_MAX if most_trips is None else most_trips
        self._input_count = count
        self._inputs = <rlx_input*>calloc(max(1, count), sizeof(rlx_input))
        self._copies = <void**>calloc(max(1, count), sizeof(void*))
        self._slots = <uintptr_t*>calloc(max(1, count), sizeof(uintptr_t))
        self._alias_of = <Py_ssize_t*>calloc(max(1, len(output_views)), sizeof(Py_ssize_t))
        if self._inputs == NULL or self._copies == NULL or self._slots == NULL or self._alias_of == NULL:
            raise MemoryError()
        for at in range(count):
            self._slots[at] = slots[at]
        places = [<uintptr_t>cnp.PyArray_DATA(<cnp.ndarray>view) for view in output_views]
        for at in range(len(places)):
            self._alias_of[at] = places.index(places[at])
        self._use(calls)
        self._set_residents(())

    def __dealloc__(self):
        cdef Py_ssize_t at
        if self._copies != NULL:
            for at in range(self._input_count):
                free(self._copies[at])
        free(self._copies)
        free(self._alias_of)
        free(self._slots)
        free(self._feeds)
        free(self._inputs)
        _free_idle()

    @cython.critical_section
    def use(self, Calls calls):
        """Later runs make these calls."""
        self._use(calls)

    cdef int _use(self, Calls calls) except -1:
        self._used, self._calls, self._count = calls, calls.rows, calls.count
        calls.set_callers_floats(&self._callers)
        self._write_sizes()
        self._bind_residents()
        return 0

    def stale(self):
        """Has the next run link its calls anew. Any thread may say so, also during a run."""
        rlx_set_bits(&self._before, STALE)

    @cython.critical_section
    def refresh(self):
        """Links the calls anew now if they are stale, so that the next run need not."""
        if rlx_bits(&self._before) & STALE:
            self._refresh()

    cdef int _refresh(self) except -1:
        # Before linking: what changes meanwhile makes it stale again.
        rlx_clear_bits(&self._before, STALE)
        try:
            self._use(self._link())
        except BaseException:
            rlx_set_bits(&self._before, STALE)
            raise
        return 0

    cdef int _prepare(self) except -1:
        """Prepares a run."""
        if rlx_bits(&self._before) & OUTSIDE:  # those outputs are no longer those of the last run
            rlx_clear_bits(&self._before, OUTSIDE)
            self._blocks = [None] * len(self._blocks)
        if rlx_bits(&self._before) & STALE:
            self._refresh()
        return 0

    @property
    def served(self):
        """The address of the calls that ``SizedRuns`` makes."""
        return <uintptr_t>&_served

    @cython.critical_section
    def set_residents(self, indices):
        """Binds these inputs to their views: runs take no argument for them."""
        self._set_residents(indices)

    def compiled(self, lock, tuple names):
        """Returns ``run_slots_locked`` and ``run_dict``, which hold a lock while they run.

        Args:
            lock: A ``rlx._ext.locks.TryLock``.
            names: Names of all inputs.
        """
        cdef uintptr_t address = lock.address
        self._lock, self._lock_state, self._names = lock, <rlx_try_lock*>address, names
        return self.run_slots_locked, self.run_dict

    # A plain method of C gets its arguments in one tuple. Cython's own functions make a second tuple at each call.
    @cython.binding(False)
    @cython.embedsignature.format("clinic")
    def run_slots_locked(self, *arrays):
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
        return self._output_views

    @cython.binding(False)
    def run_dict(self, inputs):
        """Runs named inputs that need no conversion, and returns the outputs in arrays of their own.

        Returns:
            None for inputs that need conversion or do not fit; nothing has run then.

        Raises:
            BusyError: Another call uses the graph.
        """
        if not rlx_acquire(self._lock_state):
            self._lock.refuse()
        try:
            return self._run_named(inputs, self._names)
        finally:
            rlx_release(self._lock_state, 0)

    def run_slots(self, *arrays):
        """Runs on the arguments, or on ``input_views`` without any, and returns the output views."""
        self._run(arrays)
        return self._output_views

    cdef inline int _make_ready(self) except -1:
        """Prepares the calls, and what they read beside arguments."""
        if rlx_bits(&self._before):
            self._prepare()
        if self._copied_residents:
            self._copy_residents()
        return 0

    cdef inline list _begin(self, tuple arrays):
        """Prepares the calls and binds the inputs. The result has to live until the run is over."""
        self._make_ready()
        if len(arrays):
            return None if self._bind_fitting(arrays) else self._bind_converted(arrays)
        if not self._views_bound:
            self._bind_views()
        return None

    cdef list _run_named(self, inputs, tuple names):
        cdef tuple arrays = self._named(inputs, names)
        return self._run_fresh(arrays) if arrays is not None and self._meets(arrays, False) else None

    @cython.critical_section
    cdef tuple _named(self, inputs, tuple names):
        """The values of the arguments in their order; None where ``inputs`` is not a dict of just these."""
        cdef Py_ssize_t position
        cdef cnp.PyObject* value
        cdef list arrays = []
        if type(inputs) is not dict or len(inputs) != self._argument_count:
            return None
        for position in range(self._argument_count):
            value = PyDict_GetItemWithError(inputs, names[self._inputs[position].index])
            if value == NULL:
                return None
            arrays.append(<object>value)
        return tuple(arrays)

    def run_fresh(self, tuple arrays):
        """Runs on arguments as ``run_slots`` takes them, and returns the outputs in arrays of their own."""
        return self._run_fresh(arrays)

    @cython.critical_section
    cdef list _run_fresh(self, tuple arrays):
        cdef list outputs, blocks, converted = self._begin(arrays)
        blocks = [None] * len(self._output_views)
        outputs = self._redirect_outputs(blocks)
        try:
            self._make_calls()
        finally:
            self._restore_outputs(blocks)
        self._copy_outputs(outputs, blocks)
        self._blocks = blocks
        rlx_set_bits(&self._before, OUTSIDE)
        if self._outputs_pinned:
            self._settle_outputs()
        return outputs

    cdef inline int _jump(self, Py_ssize_t* at, int64_t* trips, int64_t* looked) except -2 nogil:
        """Goes where the call at ``at`` leads. Back is another trip of a loop: signals are handled there."""
        cdef Py_ssize_t target = (<const rlx_jump_target*>self._calls[at[0]].p).target
        if target <= at[0]:
            trips[0] += 1
            if trips[0] % SIGNAL_TRIPS == 0:
                _look_at_signals(looked, self._callers)
            if trips[0] > self._most_trips:
                return TOO_MANY_TRIPS
        at[0] = target
        return RLX_OK

    @cython.critical_section
    cdef inline int _run(self, tuple arrays) except -1:
        cdef list converted = self._begin(arrays)
        return self._make_calls()

    @cython.critical_section
    cdef inline bint _run_fitting(self, tuple arrays) except -1:
        """Runs on arrays that are just like the views of the arguments; returns whether they are."""
        self._make_ready()
        if not self._bind_fitting(arrays):
            return False
        self._make_calls()
        return True

    cdef inline int _make_calls(self, Times times=None) except -1:
        """Makes the calls; with ``times`` one by one, and notes when."""
        cdef Py_ssize_t at = 0, call
        cdef int status = RLX_OK
        cdef int64_t start, looked = 0, trips = 0
        cdef bint kept = True
        with nogil:
            self._callers = rlx_floats_enter(self._floats)
            try:
                while at < self._count and kept:
                    if times is None:
                        at += self._runner(&self._calls[at], self._count - at, &status)
                    else:
                        call, start = at, rlx_clock_ns()
                        at += self._runner(&self._calls[at], 1, &status)
                        kept = times.add(call, start, rlx_clock_ns())
                    if status == RLX_JUMP:
                        status = self._jump(&at, &trips, &looked)
                    if status != RLX_OK:
                        break
            finally:
                rlx_floats_set(self._callers)
            if status == RLX_OK and kept:
                self._feed()
        if not kept:
            raise MemoryError()
        if status:
            self._fail(status, at)
        return 0

    @cython.critical_section
    def run_timed(self, Times times not None, *arrays):
        """``run_slots`` with the time of every call; slower. What ran before a call that fails is kept as well."""
        cdef list converted = self._begin(arrays)
        self._make_calls(times)
        return self._output_views

    cdef _fail(self, int status, Py_ssize_t at):
        if status == RLX_PYTHON_ERROR:
            function = <object>(<const rlx_python*>self._calls[at].p).function
            error, function.error = function.error, None
            raise error
        if status == TOO_MANY_TRIPS:
            raise InputError(
                describe(
                    "the loops of a run make more trips than allowed",
                    got=f"over {self._most_trips}",
                    hint="CompileOptions(max_iterations=...) sets the bound",
                )
            )
        if status == RLX_CUSTOM_ERROR:
            raise RlxError(describe("a C function reports an error", where=self._used.names[at]))
        raise InputError(describe("a value is out of range", where=self._used.names[at]))


cdef int _look_at_signals(int64_t* looked, rlx_floats callers) except -1 nogil:
    """Runs the handlers of pending signals, if some time has passed since the last look."""
    cdef int64_t now = rlx_clock_ns()
    cdef rlx_floats before
    if looked[0] == 0:
        looked[0] = now
    elif now - looked[0] >= SIGNAL_NS:
        looked[0] = now
        with gil:
            before = rlx_floats_enter(callers)
            try:
                PyErr_CheckSignals()
            finally:
                rlx_floats_set(before)
    return 0


cdef inline bint _is_like(object value, rlx_input* bound) noexcept:
    """Returns whether an argument is an array just like the view of its bound input, but for the sizes of its axes."""
    return (
        cnp.PyArray_CheckExact(value)
        and cnp.PyArray_TYPE(<cnp.ndarray>value) == bound.type
        and cnp.PyArray_NDIM(<cnp.ndarray>value) == bound.rank
        and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>value)
    )


cdef inline bint _fits(object value, rlx_input* bound) noexcept:
    """Returns whether an argument is an array just like the view of its bound input."""
    cdef const cnp.npy_intp* dims
    cdef int axis
    if not _is_like(value, bound):
        return False
    dims = cnp.PyArray_DIMS(<cnp.ndarray>value)
    for axis in range(bound.rank):
        if dims[axis] != bound.dims[axis]:
            return False
    return True


include "sized_runs.pxi"
include "segment_runs.pxi"
