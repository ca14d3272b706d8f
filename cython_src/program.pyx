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
    rlx_call,
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
        uintptr_t holder
    const uintptr_t RLX_ME

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef extern from "Python.h":
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


@cython.final
cdef class Program:
    """The calls of a run, with the arrays that they read and write.

    Whoever calls a method, ``run_owned`` apart, sees to it that no other thread does at the same time.

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
    """

    cdef rlx_call* _calls
    cdef rlx_feed* _feeds
    cdef Py_ssize_t _count
    cdef Py_ssize_t _feed_count
    cdef rlx_slot* _given  # what run_slots takes an argument for
    cdef Py_ssize_t _given_count
    cdef void** _copies  # of arguments in memory that calls write to, by input; allocated when first needed
    cdef uintptr_t* _slots
    cdef Py_ssize_t _filled  # how many inputs have a view outside the arena
    cdef bint _away  # whether a run without arguments has to call _home
    cdef int _before  # what the next run has to do first: STALE, OUTSIDE, both or nothing
    cdef bint _shown  # whether somebody may look at the input views between runs
    cdef bint _watched  # whether somebody may look at outputs in the arena
    cdef list _held  # of each input, the argument that a run without arguments reads; None for the view
    cdef list _blocks  # of each output, the block that has it since the last run; None for the arena
    cdef Py_ssize_t* _first  # of each output, the first one that stands at the same place of the arena
    cdef rlx_copier _copier
    cdef int64_t _threads
    cdef int64_t _spin
    cdef object _allocate
    cdef int64_t _most_trips
    cdef tuple _input_views
    cdef tuple _output_views
    cdef Calls _used
    cdef char* _arena
    cdef char* _arena_end
    cdef char* _inputs_end
    cdef object _link
    cdef object _owner
    cdef rlx_owner* _state
    cdef object __weakref__

    def __cinit__(
        self, Calls calls, tuple input_views, slots, tuple output_views, cnp.ndarray arena,
        Py_ssize_t inputs_end, link, most_trips, tuple copier, allocate,
    ):
        cdef Py_ssize_t at, count = len(input_views)
        cdef uintptr_t address = copier[0]
        self._copier, self._threads, self._spin = <rlx_copier><void*>address, copier[1], copier[2]
        self._allocate = allocate
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
            for at in range(len(self._input_views)):
                free(self._copies[at])
        free(self._copies)
        free(self._first)
        free(self._slots)
        free(self._feeds)
        free(self._given)
        free_idle()

    def use(self, Calls calls):
        """Later runs make these calls."""
        if self._used is not None:
            self._home()
        self._used, self._calls, self._count = calls, calls.rows, calls.count

    def stale(self):
        """Has the next run link its calls anew. Any thread may say so, also during a run."""
        self._before |= STALE

    def refresh(self):
        """Links the calls anew now if they are stale, so that the next run need not."""
        if self._before & STALE:
            self._refresh()

    cdef int _refresh(self) except -1:
        # Before linking: what changes meanwhile makes it stale again.
        self._before &= ~STALE
        try:
            self.use(self._link())
        except BaseException:
            self._before |= STALE
            raise
        return 0

    cdef int _prepare(self) except -1:
        """Does what a run has to do first."""
        if self._before & OUTSIDE:  # those outputs are no longer those of the last run
            self._before &= ~OUTSIDE
            self._blocks = [None] * len(self._blocks)
        if self._before & STALE:
            self._refresh()
        return 0

    cdef void _home(self) noexcept:
        """All inputs are read in their views, or in slots that are filled from them."""
        cdef Py_ssize_t at
        if self._away:
            self._settle_inputs()
            for at in range(len(self._input_views)):
                self._used.point(at, cnp.PyArray_DATA(<cnp.ndarray>self._input_views[at]))
            self._fill(True)
            self._away = self._filled > 0 or not self._shown

    cdef void _settle_inputs(self) noexcept:
        """Copies the arguments that ``run_fresh`` has read in place into the views."""
        cdef Py_ssize_t at
        cdef cnp.ndarray view
        for at in range(len(self._held)):
            if self._held[at] is not None:
                view = <cnp.ndarray>self._input_views[at]
                # Its owner may have changed its shape since.
                if cnp.PyArray_NBYTES(<cnp.ndarray>self._held[at]) == cnp.PyArray_NBYTES(view):
                    self._copy(
                        cnp.PyArray_DATA(view),
                        cnp.PyArray_DATA(<cnp.ndarray>self._held[at]),
                        cnp.PyArray_NBYTES(view),
                    )
                self._held[at] = None

    cdef inline void _copy(self, void* target, const void* source, Py_ssize_t nbytes) noexcept nogil:
        """Copies bytes, many of them on all threads."""
        if nbytes:  # what is empty may have no memory
            self._copier(target, source, nbytes, self._threads, self._spin)

    cdef inline void _copy_array(self, cnp.ndarray target, cnp.ndarray source) noexcept:
        """Copies an array to one just like it. Other threads run Python meanwhile if that takes long."""
        cdef void* where = cnp.PyArray_DATA(target)
        cdef const void* data = cnp.PyArray_DATA(source)
        cdef Py_ssize_t nbytes = cnp.PyArray_NBYTES(target)
        if nbytes < LARGE:
            self._copy(where, data, nbytes)
        else:
            with nogil:
                self._copy(where, data, nbytes)

    def show_inputs(self):
        """From now on ``input_views`` hold the inputs of the last run by name. Any thread may call it."""
        self._shown = True
        self._settle_inputs()

    @property
    def shown(self):
        """Whether somebody may look at the input views between runs."""
        return self._shown

    def fill(self, which, array):
        """Puts an array into an input's view."""
        self._held[which] = None
        self._input_views[which][...] = array

    def show_outputs(self):
        """From now on outputs stand in the arena after every run. Any thread may call it."""
        self._watched = True
        self.settle_outputs()

    def settle_outputs(self):
        """Copies the outputs of the last run to the arena, as far as they were written elsewhere."""
        cdef Py_ssize_t at
        cdef cnp.ndarray view
        for at in range(len(self._blocks)):
            if self._blocks[at] is not None:
                view = <cnp.ndarray>self._output_views[at]
                self._copy(
                    cnp.PyArray_DATA(view),
                    cnp.PyArray_DATA((<Block>self._blocks[at])._memory),
                    cnp.PyArray_NBYTES(view),
                )
                self._blocks[at] = None

    def forget(self):
        """Drops what the last run by name has read and written in place."""
        self._held = [None] * len(self._held)
        self._blocks = [None] * len(self._blocks)

    cdef inline bint _is_filled(self, Py_ssize_t which) noexcept:
        """Whether an input's view is not its slot, so that runs fill the slot."""
        cdef uintptr_t view
        view = <uintptr_t>cnp.PyArray_DATA(<cnp.ndarray>self._input_views[which])
        return self._slots[which] != 0 and self._slots[which] != view

    cdef void _fill(self, bint all_inputs) noexcept:
        """Copies views into the slots that runs fill: those of all inputs, or of inputs without an argument."""
        cdef Py_ssize_t which, at = 0
        cdef cnp.ndarray view
        for which in range(len(self._input_views)):
            if not all_inputs and at < self._given_count and self._given[at].which == which:
                at += 1
            elif self._is_filled(which):
                view = <cnp.ndarray>self._input_views[which]
                self._copy(
                    <void*>self._slots[which], cnp.PyArray_DATA(view), cnp.PyArray_NBYTES(view)
                )

    cdef inline bint _written(self, const char* data) noexcept:
        """Whether calls may write to what stands at an address."""
        return self._inputs_end <= data < self._arena_end

    cdef int _bring(self, rlx_slot* slot, const char* data) except -1:
        """Lets an input be read from an argument just like its view, or from a copy of it."""
        cdef void** copy = &self._copies[slot.which]
        if not self._used.movable(slot.which):
            if slot.nbytes:  # an empty input has no memory
                memcpy(slot.memory, data, slot.nbytes)
            return 0
        if self._written(data) and slot.nbytes:
            if copy[0] == NULL:
                copy[0] = malloc(slot.nbytes)
                if copy[0] == NULL:
                    raise MemoryError()
            memcpy(copy[0], data, slot.nbytes)
            data = <const char*>copy[0]
        self._used.point(slot.which, <void*>data)
        self._away = True
        return 0

    cdef list _take(self, tuple arrays):
        """Takes the arguments of a run.

        Returns:
            None, or arrays that were made and have to live until the run is over.
        """
        cdef Py_ssize_t at
        cdef rlx_slot* slot
        cdef const char* data
        cdef bint copied = False
        if len(arrays) != self._given_count:
            check_slots(arrays, self._given_count)
        for at in range(self._given_count):
            slot = &self._given[at]
            if not _fits(arrays[at], slot):
                return self._convert(arrays)
            data = <const char*>cnp.PyArray_DATA(<cnp.ndarray>arrays[at])
            if not self._written(data) and self._used.movable(slot.which):
                self._used.point(slot.which, <void*>data)
                self._away = True
            else:
                copied = True
        if copied:
            for at in range(self._given_count):
                self._bring(
                    &self._given[at], <const char*>cnp.PyArray_DATA(<cnp.ndarray>arrays[at])
                )
        return None

    cdef list _convert(self, tuple arrays):
        """``_take`` of arguments of which one may be of another dtype, strided, or no array.

        Converting runs code of the caller's, which may do anything to the other arguments, so that no
        address is taken before all are converted.
        """
        cdef Py_ssize_t at
        cdef rlx_slot* slot
        cdef list held = []
        for at in range(self._given_count):
            held.append(as_input(arrays[at], self._input_views[self._given[at].which], at))
        for at in range(self._given_count):
            slot = &self._given[at]
            held[at] = contiguous(held[at], self._input_views[slot.which], at)
        for at in range(self._given_count):
            slot = &self._given[at]
            self._bring(slot, <const char*>cnp.PyArray_DATA(<cnp.ndarray>held[at]))
        return held

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

    def set_feeds(self, pairs):
        """After each run these inputs take these outputs: ``(input, output)`` of one size."""
        cdef rlx_feed* feeds
        cdef cnp.ndarray source, target
        cdef Py_ssize_t at
        feeds = <rlx_feed*>calloc(max(1, len(pairs)), sizeof(rlx_feed))
        if feeds == NULL:
            raise MemoryError()
        for at, (which, output) in enumerate(pairs):
            target, source = self._input_views[which], self._output_views[output]
            feeds[at].output = output
            feeds[at].target = cnp.PyArray_DATA(target)
            feeds[at].source = cnp.PyArray_DATA(source)
            feeds[at].nbytes = cnp.PyArray_NBYTES(source)
        free(self._feeds)
        self._feeds, self._feed_count = feeds, len(pairs)

    def owned_by(self, owner):
        """``run_slots`` as a function that holds an owner while it runs, and is refused where it can't.

        Args:
            owner: A ``rlx._ext.owner.Owner``.
        """
        cdef uintptr_t address = owner.address
        self._owner, self._state = owner, <rlx_owner*>address
        return self.run_owned

    def run_owned(self, *arrays):
        """Runs the graph and returns its outputs: the same read-only arrays at every call.

        ``run_slots(*arrays)`` takes one array per input, in the order of declaration. ``run_slots()``
        computes from ``input_views``, where arguments never show up. The next run overwrites the outputs: copy
        what has to stay.

        Raises:
            InputError: A wrong count or shape, a dtype or value that does not convert, or the graph is closed.
            BusyError: Another call uses the graph.
        """
        if self._state.holder:
            self._owner.refuse()
        self._state.holder = RLX_ME
        try:
            self._run(arrays)
        finally:
            self._state.holder = 0
        return self._output_views

    def run_slots(self, *arrays):
        """Runs on the arguments, or on ``input_views`` without any, and returns the output views."""
        self._run(arrays)
        return self._output_views

    cdef inline list _begin(self, tuple arrays):
        """Makes inputs and calls ready for a run; what is returned has to live until the run is over."""
        if self._before:
            self._prepare()
        if len(arrays):
            if self._filled:
                self._fill(False)
            return self._take(arrays)
        if self._away:
            self._shown = True
            self._home()
        return None

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
        return self.run_fresh(arrays)

    def run_fresh(self, list arrays):
        """Runs on arguments that ``input_views`` then hold, and returns the outputs in arrays of their own.

        Args:
            arrays: What ``run_slots`` takes, each an array of its input's shape and dtype. None overlaps an
                input view, unless it is that input's own.
        """
        cdef list found, blocks
        if self._before:
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
        self._before |= OUTSIDE
        if self._watched:
            self.settle_outputs()
        return found

    cdef int _receive(self, list arrays) except -1:
        """Inputs are read from arguments, where they are or in the views."""
        cdef Py_ssize_t at
        cdef rlx_slot* slot
        cdef cnp.ndarray view, array
        cdef bint fits, away = self._filled > 0 or not self._shown
        self._away = True  # in case of an exception
        if len(arrays) != self._given_count:
            check_slots(arrays, self._given_count)
        for at in range(self._given_count):
            slot = &self._given[at]
            array = <cnp.ndarray?>arrays[at]
            view = <cnp.ndarray>self._input_views[slot.which]
            fits = _fits(array, slot)
            if (
                fits
                and slot.nbytes >= LARGE
                and not self._shown
                and self._used.movable(slot.which)
                and not self._written(<const char*>cnp.PyArray_DATA(array))
            ):
                self._held[slot.which] = array
                self._used.point(slot.which, cnp.PyArray_DATA(array))
                continue
            if not fits:
                view[...] = array
            elif cnp.PyArray_DATA(array) != cnp.PyArray_DATA(view):
                self._copy_array(view, array)
            self._held[slot.which] = None
            self._used.point(slot.which, cnp.PyArray_DATA(view))
        self._away = away
        return 0

    cdef list _outward(self, list blocks):
        """Makes an array for each output, and has calls write the large ones there, as ``blocks`` then says."""
        cdef Py_ssize_t at, inputs = len(self._input_views)
        cdef cnp.ndarray view
        cdef Block block
        cdef list found = []
        for at in range(len(self._output_views)):
            view = <cnp.ndarray>self._output_views[at]
            if cnp.PyArray_NBYTES(view) < LARGE:
                found.append(
                    cnp.PyArray_EMPTY(
                        cnp.PyArray_NDIM(view), cnp.PyArray_DIMS(view), cnp.PyArray_TYPE(view), 0
                    )
                )
                continue
            block = _block(cnp.PyArray_NBYTES(view), self._allocate)
            found.append(_array_in(block, view))
            if self._used.movable(inputs + at) and not self._watched:
                blocks[at] = block
        for at in range(len(blocks)):
            if blocks[at] is not None:
                self._write_at(at, cnp.PyArray_DATA((<Block>blocks[at])._memory))
        return found

    cdef void _inward(self, list blocks) noexcept:
        """Calls write the outputs to the arena again."""
        cdef Py_ssize_t at
        for at in range(len(blocks)):
            if blocks[at] is not None:
                self._write_at(at, cnp.PyArray_DATA(<cnp.ndarray>self._output_views[at]))

    cdef void _write_at(self, Py_ssize_t output, void* address) noexcept:
        """From now on calls write and read an output there, and feeds take it from there."""
        cdef Py_ssize_t at
        self._used.point(len(self._input_views) + output, address)
        for at in range(self._feed_count):
            if self._first[self._feeds[at].output] == output:
                self._feeds[at].source = address

    cdef void _copy_outputs(self, list found, list blocks) noexcept:
        """Copies the outputs that calls did not write where they are returned."""
        cdef Py_ssize_t at, first
        for at in range(len(found)):
            if blocks[at] is None:
                first = self._first[at]
                self._copy_array(
                    <cnp.ndarray>found[at],
                    <cnp.ndarray>(self._output_views if blocks[first] is None else found)[first],
                )

    cdef inline int _jump(self, Py_ssize_t* at, int64_t* trips, int64_t* looked) except -2 nogil:
        """Goes where the call at ``at`` leads. Back is another trip of a loop: signals are handled there."""
        cdef Py_ssize_t target = (<const rlx_jump_target*>self._calls[at[0]].p).target
        if target <= at[0]:
            trips[0] += 1
            if trips[0] % SIGNAL_TRIPS == 0:
                _look_at_signals(looked)
            if trips[0] > self._most_trips:
                return TOO_MANY_TRIPS
        at[0] = target
        return RLX_OK

    cdef inline void _feed(self) noexcept nogil:
        """Inputs take the outputs that ``set_feeds`` names."""
        cdef Py_ssize_t at
        for at in range(self._feed_count):
            memcpy(self._feeds[at].target, self._feeds[at].source, self._feeds[at].nbytes)

    cdef inline int _run(self, tuple arrays) except -1:
        cdef list held = self._begin(arrays)
        return self._make_calls()

    cdef inline int _make_calls(self) except -1:
        cdef Py_ssize_t at = 0
        cdef int status = RLX_OK
        cdef int64_t looked = 0, trips = 0
        with nogil:
            while at < self._count:
                status = self._calls[at].fn(&self._calls[at])
                if status == RLX_OK:
                    at += 1
                    continue
                if status == RLX_JUMP:
                    status = self._jump(&at, &trips, &looked)
                if status != RLX_OK:
                    break
            if status == RLX_OK:
                self._feed()
        if status:
            self._fail(status, at)
        return 0

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


cdef int _look_at_signals(int64_t* looked) except -1 nogil:
    """Runs the handlers of signals that have come, if some time has passed since the last look."""
    cdef int64_t now = rlx_clock_ns()
    if looked[0] == 0:
        looked[0] = now
    elif now - looked[0] >= SIGNAL_NS:
        looked[0] = now
        with gil:
            PyErr_CheckSignals()
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
