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
from rlx.errors import InputError, RlxError, describe

cnp.import_array()

cdef extern from "clock.h" nogil:
    int64_t rlx_clock_ns()

cdef extern from "owner.h" nogil:
    ctypedef struct rlx_owner:
        pass
    bint rlx_take(rlx_owner* owner)
    void rlx_leave(rlx_owner* owner, uintptr_t to)
    int rlx_bits(const int* bits)
    void rlx_set_bits(int* bits, int some)
    void rlx_clear_bits(int* bits, int some)

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1
    cnp.PyObject* PyDict_GetItemWithError(object, object) except? NULL

include "calls.pxi"
include "fresh.pxi"

# While a loop of the graph runs, signals are handled between two of its trips: when at least SIGNAL_NS
# nanoseconds have passed since the last time, which is looked up on the clock every SIGNAL_TRIPS trips.
cdef enum:
    SIGNAL_NS = 5_000_000
    SIGNAL_TRIPS = 4
    TOO_MANY_TRIPS = -1

# What the next run has to do first: link the calls anew, or forget outputs that stand outside of the arena.
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


cdef struct rlx_slot:
    Py_ssize_t which  # input of the graph
    void* memory  # what calls read that can't be pointed elsewhere
    Py_ssize_t nbytes
    const cnp.npy_intp* dims
    int rank
    int type


include "program_inputs.pxi"
include "program_outputs.pxi"


@cython.final
cdef class Program(GivesOutputs):
    """The calls of a run, with the arrays that they read and write.

    Whoever calls a method, ``run_owned`` apart, sees to it that no other thread does at the same time. Those that any
    thread may call are said to be so. They share what they change with a run under way, so that without the GIL each
    method is a critical section of its program, which is left for as long as a run makes its calls.

    ``run_slots`` with arguments leaves ``input_views`` as they are. Where all readers of an input are calls,
    they are pointed at the argument. Where a Python function has a view of the input's slot, the slot is
    filled before each run, and the input's view is other memory.

    ``run_fresh`` replaces what the input views hold. It reads large arguments where they are and keeps a
    reference to them. They are copied into the views when somebody asks for the views, or runs on them. From
    then on every ``run_fresh`` copies its arguments first. In the same way it writes large outputs where they
    are returned, and ``settle_outputs`` copies them to the arena.

    Args:
        calls: The calls.
        input_views: Arrays that hold the inputs of a run without arguments.
        slots: Addresses of the inputs in the arena; 0 for empty ones.
        output_views: Arrays that ``run_slots`` returns.
        arena: The memory that calls write to.
        inputs_end: Bytes at its beginning that hold the inputs and nothing else. No call writes there.
        link: Returns the calls anew, when weights stand elsewhere than before (see ``stale``).
        most_trips: Trips that the loops of a run make at most, all together; None for no bound.
        copier: Address of ``rlx_parallel_copy``, and its last two arguments.
        allocate: Makes memory of so many bytes.
        flush: Whether arithmetic gives 0 in place of subnormal numbers (floats.h).
    """

    cdef rlx_call* _calls
    cdef Py_ssize_t _count
    cdef int _before  # what the next run has to do first: STALE, OUTSIDE, both or nothing
    cdef rlx_floats _floats  # how calls treat subnormal numbers
    cdef rlx_floats _callers  # how the thread that runs them treats them otherwise
    cdef int64_t _most_trips
    cdef object _link
    cdef object _owner
    cdef rlx_owner* _state
    cdef object __weakref__

    def __cinit__(
        self, Calls calls, tuple input_views, slots, tuple output_views, cnp.ndarray arena,
        Py_ssize_t inputs_end, link, most_trips, tuple copier, allocate, bint flush,
    ):
        cdef Py_ssize_t at, count = len(input_views)
        cdef uintptr_t address = copier[0]
        self._copier, self._threads, self._spin = <rlx_copier><void*>address, copier[1], copier[2]
        self._allocate = allocate
        self._floats = RLX_FLOATS_IEEE | (RLX_FLOATS_RESULTS if flush else 0)
        self._held, self._blocks = [None] * count, [None] * len(output_views)
        self._input_views = input_views
        self._output_views = output_views
        self._arena = <char*>cnp.PyArray_DATA(arena)
        self._arena_end = self._arena + cnp.PyArray_NBYTES(arena)
        self._inputs_end = self._arena + inputs_end
        self._link = link
        self._most_trips = INT64_MAX if most_trips is None else most_trips
        self._given = <rlx_slot*>calloc(max(1, count), sizeof(rlx_slot))
        self._copies = <void**>calloc(max(1, count), sizeof(void*))
        self._most_copies = len(input_views)
        self._slots = <uintptr_t*>calloc(max(1, count), sizeof(uintptr_t))
        self._first = <Py_ssize_t*>calloc(max(1, len(output_views)), sizeof(Py_ssize_t))
        if self._given == NULL or self._copies == NULL or self._slots == NULL or self._first == NULL:
            raise MemoryError()
        for at in range(count):
            self._slots[at] = slots[at]
            self._filled += self._is_filled(at)
        places = [<uintptr_t>cnp.PyArray_DATA(<cnp.ndarray>view) for view in output_views]
        for at in range(len(places)):
            self._first[at] = places.index(places[at])
        self._away = True  # the first run on the views notes that they are in use
        self.use(calls)
        self.set_resident(())

    def __dealloc__(self):
        cdef Py_ssize_t at
        if self._copies != NULL:
            for at in range(self._most_copies):
                free(self._copies[at])
        free(self._copies)
        free(self._first)
        free(self._slots)
        free(self._feeds)
        free(self._given)
        _free_idle()

    @cython.critical_section
    def use(self, Calls calls):
        """Later runs make these calls."""
        self._use(calls)

    cdef int _use(self, Calls calls) except -1:
        if self._used is not None:
            self._home()
        self._used, self._calls, self._count = calls, calls.rows, calls.count
        calls.tell(&self._callers)
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
        """Does what a run has to do first."""
        if rlx_bits(&self._before) & OUTSIDE:  # those outputs are no longer those of the last run
            rlx_clear_bits(&self._before, OUTSIDE)
            self._blocks = [None] * len(self._blocks)
        if rlx_bits(&self._before) & STALE:
            self._refresh()
        return 0

    @cython.critical_section
    def set_resident(self, indices):
        """Inputs that ``run_slots`` takes no argument for: their memory stays as it is."""
        self._home()
        cdef cnp.ndarray view
        cdef Py_ssize_t at
        self._given_count = 0
        for at in range(len(self._input_views)):
            if at not in indices:
                view = <cnp.ndarray>self._input_views[at]
                self._given[self._given_count] = rlx_slot(
                    at,
                    <void*>self._slots[at],
                    cnp.PyArray_NBYTES(view),
                    cnp.PyArray_DIMS(view),
                    cnp.PyArray_NDIM(view),
                    cnp.PyArray_TYPE(view),
                )
                self._given_count += 1

    def owned_by(self, owner):
        """``run_slots`` as a function that holds an owner while it runs, and is refused where it can't.

        Args:
            owner: A ``rlx._ext.owner.Owner``.
        """
        cdef uintptr_t address = owner.address
        self._owner, self._state = owner, <rlx_owner*>address
        return self.run_owned

    # A plain method of C: its arguments come in one tuple. Cython's own functions make a second one at each call.
    @cython.binding(False)
    @cython.embedsignature.format("clinic")
    def run_owned(self, *arrays):
        """Runs the graph and returns its outputs: the same read-only arrays at every call.

        ``run_slots(*arrays)`` takes one array per input, in the order of declaration. ``run_slots()``
        computes from ``input_views``, where arguments never show up. The next run overwrites the outputs: copy
        what has to stay.

        Raises:
            InputError: A wrong count or shape, a dtype or value that does not convert, or the graph is closed.
            BusyError: Another call uses the graph.
        """
        if not rlx_take(self._state):
            self._owner.refuse()
        try:
            self._run(arrays)
        finally:
            rlx_leave(self._state, 0)
        return self._output_views

    def run_slots(self, *arrays):
        """Runs on the arguments, or on ``input_views`` without any, and returns the output views."""
        self._run(arrays)
        return self._output_views

    cdef inline list _begin(self, tuple arrays):
        """Makes inputs and calls ready for a run; what is returned has to live until the run is over."""
        if rlx_bits(&self._before):
            self._prepare()
        if len(arrays):
            if self._filled:
                self._fill(False)
            return self._take(arrays)
        if self._away:
            self._shown = True
            self._home()
        return None

    @cython.critical_section
    def run_named(self, tuple names, inputs):
        """``run_fresh`` on named inputs that need no conversion.

        Args:
            names: Names of all inputs of the graph.
            inputs: The arrays by name.

        Returns:
            None, and nothing has run, where an input does not fit as it is, or the views are in use.
        """
        cdef Py_ssize_t at
        cdef cnp.PyObject* found
        cdef list arrays = []
        if type(inputs) is not dict or len(inputs) != self._given_count or self._shown:
            return None
        for at in range(self._given_count):
            found = PyDict_GetItemWithError(inputs, names[self._given[at].which])
            if found == NULL or not _fits(<object>found, &self._given[at]):
                return None
            arrays.append(<object>found)
        return self._run_fresh(arrays)

    @cython.critical_section
    def run_fresh(self, list arrays):
        """Runs on arguments that ``input_views`` then hold, and returns the outputs in arrays of their own.

        Args:
            arrays: What ``run_slots`` takes, each an array of its input's shape and dtype. None overlaps an
                input view, unless it is that input's own.
        """
        return self._run_fresh(arrays)

    cdef list _run_fresh(self, list arrays):
        cdef list found, blocks
        if rlx_bits(&self._before):
            self._prepare()
        self._receive(arrays)
        if self._filled:
            self._fill(True)
        blocks = [None] * len(self._output_views)
        found = self._outward(blocks)
        try:
            self._make_calls()
        finally:
            self._inward(blocks)
        self._copy_outputs(found, blocks)
        self._blocks = blocks
        rlx_set_bits(&self._before, OUTSIDE)
        if self._watched:
            self._settle_outputs()
        return found

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
        cdef list held = self._begin(arrays)
        return self._make_calls()

    cdef inline int _make_calls(self) except -1:
        cdef Py_ssize_t at = 0
        cdef int status = RLX_OK
        cdef int64_t looked = 0, trips = 0
        with nogil:
            self._callers = rlx_floats_enter(self._floats)
            try:
                while at < self._count:
                    status = self._calls[at].fn(&self._calls[at])
                    if status == RLX_OK:
                        at += 1
                        continue
                    if status == RLX_JUMP:
                        status = self._jump(&at, &trips, &looked)
                    if status != RLX_OK:
                        break
            finally:
                rlx_floats_set(self._callers)
            if status == RLX_OK:
                self._feed()
        if status:
            self._fail(status, at)
        return 0

    @cython.critical_section
    def run_timed(self, Times times, *arrays):
        """``run_slots`` with the time of every call; slower, and in a loop of its own.

        What ran before a call that fails is kept as well.
        """
        cdef Py_ssize_t at = 0
        cdef int status = RLX_OK
        cdef int64_t start, end, looked = 0, trips = 0
        cdef bint kept = True
        cdef list held = self._begin(arrays)
        with nogil:
            self._callers = rlx_floats_enter(self._floats)
            try:
                while at < self._count and kept:
                    start = rlx_clock_ns()
                    status = self._calls[at].fn(&self._calls[at])
                    end = rlx_clock_ns()
                    kept = times.add(at, start, end)
                    if status == RLX_OK:
                        at += 1
                        continue
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
        return self._output_views

    cdef _fail(self, int status, Py_ssize_t at):
        if status == RLX_PYTHON_ERROR:
            function = <object>(<const rlx_python*>self._calls[at].p).function
            error, function.error = function.error, None
            raise error
        if status == TOO_MANY_TRIPS:
            raise InputError(
                describe(
                    "the loops of a run make more trips than they may",
                    got=f"over {self._most_trips}",
                    hint="CompileOptions(max_iterations=...) sets the bound",
                )
            )
        if status == RLX_CUSTOM_ERROR:
            raise RlxError(describe("a C function reports an error", where=self._used.names[at]))
        raise InputError(describe("an index is out of range", where=self._used.names[at]))


cdef int _look_at_signals(int64_t* looked, rlx_floats callers) except -1 nogil:
    """Runs the handlers of signals that have come, if some time has passed since the last look."""
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


cdef inline bint _fits(object given, rlx_slot* slot) noexcept:
    """Whether an argument is an array just like the view of its slot."""
    cdef cnp.ndarray array
    cdef const cnp.npy_intp* dims
    cdef int axis
    if not cnp.PyArray_CheckExact(given):
        return False
    array = <cnp.ndarray>given
    if (
        cnp.PyArray_TYPE(array) != slot.type
        or cnp.PyArray_NDIM(array) != slot.rank
        or not cnp.PyArray_ISCARRAY_RO(array)
    ):
        return False
    dims = cnp.PyArray_DIMS(array)
    for axis in range(slot.rank):
        if dims[axis] != slot.dims[axis]:
            return False
    return True
