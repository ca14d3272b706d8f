# The CPU's hot path: a flat program of kernel calls, run in one loop without the GIL.
"""Compiled kernels of the CPU backend, and the program that runs them."""

from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cimport numpy as cnp

from _types cimport (
    RLX_CUSTOM_ERROR,
    RLX_JUMP,
    RLX_OK,
    RLX_PYTHON_ERROR,
    rlx_call,
    rlx_kernel,
    rlx_param,
    rlx_table,
    rlx_table_avx2,
    rlx_table_avx512,
    rlx_table_plain,
)

from rlx.backends.base import as_input, check_slots
from rlx.errors import InputError, RlxError, describe

cnp.import_array()


cdef const rlx_table* _table(str isa) except NULL:
    if isa == "plain":
        return &rlx_table_plain
    if isa == "avx2":
        return &rlx_table_avx2
    if isa == "avx512":
        return &rlx_table_avx512
    raise KeyError(isa)


def isas():
    """Names of the instruction sets usable on this processor, the best first."""
    return [name for name in ("avx512", "avx2", "plain") if _table(name).usable()]


def kernels(str isa):
    """Addresses of the kernels by name, for one instruction set."""
    cdef const rlx_table* table = _table(isa)
    found = {}
    cdef Py_ssize_t i = 0
    while table.kernels != NULL and table.kernels[i].name != NULL:
        found[table.kernels[i].name.decode()] = <uintptr_t>table.kernels[i].fn
        i += 1
    return found


def loops(str isa):
    """Addresses of the elementwise loops by name, for one instruction set."""
    cdef const rlx_table* table = _table(isa)
    found = {}
    cdef Py_ssize_t i = 0
    while table.loops != NULL and table.loops[i].name != NULL:
        found[table.loops[i].name.decode()] = <uintptr_t>table.loops[i].fn
        i += 1
    return found


cdef struct rlx_feed:
    void* target
    const void* source
    Py_ssize_t nbytes


cdef int _call_python(const rlx_call* call) noexcept with gil:
    """Runs a Python function amid the compiled kernels: the first parameter is the object."""
    return RLX_OK if (<object>call.p[0].p)() else RLX_PYTHON_ERROR


def python_kernel():
    """Address of the kernel that calls the Python object in its first parameter.

    The object takes no arguments, returns whether it went well, and otherwise keeps the exception in
    its attribute ``error``.
    """
    return <uintptr_t><void*>_call_python


cdef class Calls:
    """Kernel calls on fixed addresses.

    Args:
        calls: ``(kernel address, input addresses, output addresses, int64 parameters, name)``.
        keep: Objects that own the memory at the addresses.
    """

    cdef rlx_call* rows
    cdef Py_ssize_t count
    cdef list names
    cdef object _keep

    def __cinit__(self, calls, keep):
        cdef Py_ssize_t at, k
        cdef uintptr_t address
        self.count = len(calls)
        self.names = [call[4] for call in calls]
        self._keep = (keep, [call[3] for call in calls])
        self.rows = <rlx_call*>calloc(max(1, self.count), sizeof(rlx_call))
        if self.rows == NULL:
            raise MemoryError()
        for at, (kernel, inputs, outputs, params, _) in enumerate(calls):
            address = kernel
            self.rows[at].fn = <rlx_kernel><void*>address
            for k, value in enumerate(inputs):
                address = value
                self.rows[at].ins[k] = <void*>address
            for k, value in enumerate(outputs):
                address = value
                self.rows[at].out[k] = <void*>address
            address = params.ctypes.data
            self.rows[at].p = <const rlx_param*>address

    def __dealloc__(self):
        free(self.rows)


cdef class Program:
    """The calls of a run, with the arrays that they read and write.

    Args:
        calls: The calls.
        input_views: Arrays that ``run_slots`` copies its arguments into.
        output_views: Arrays that it returns.
    """

    cdef rlx_call* _calls
    cdef rlx_feed* _feeds
    cdef Py_ssize_t _count
    cdef Py_ssize_t _feed_count
    cdef list _given
    cdef bint _busy
    cdef tuple _input_views
    cdef tuple _output_views
    cdef Calls _used

    def __cinit__(self, Calls calls, tuple input_views, tuple output_views):
        self._given = list(range(len(input_views)))
        self._input_views = input_views
        self._output_views = output_views
        self.use(calls)

    def __dealloc__(self):
        free(self._feeds)

    def use(self, Calls calls):
        """Later runs make these calls."""
        self._alone()
        self._used, self._calls, self._count = calls, calls.rows, calls.count

    def set_resident(self, indices):
        """Inputs that ``run_slots`` takes no argument for: their memory stays as it is."""
        self._alone()
        self._given = [at for at in range(len(self._input_views)) if at not in indices]

    def set_feeds(self, pairs):
        """After each run these inputs take these outputs: ``(input, output)`` of one size."""
        cdef rlx_feed* feeds
        cdef cnp.ndarray source, target
        cdef Py_ssize_t at
        self._alone()
        feeds = <rlx_feed*>calloc(max(1, len(pairs)), sizeof(rlx_feed))
        if feeds == NULL:
            raise MemoryError()
        for at, (which, output) in enumerate(pairs):
            target, source = self._input_views[which], self._output_views[output]
            feeds[at].target = cnp.PyArray_DATA(target)
            feeds[at].source = cnp.PyArray_DATA(source)
            feeds[at].nbytes = cnp.PyArray_NBYTES(source)
        free(self._feeds)
        self._feeds, self._feed_count = feeds, len(pairs)

    cdef int _alone(self) except -1:
        if self._busy:
            raise RlxError(
                describe(
                    "this CompiledGraph is already running in another thread",
                    hint="give each thread its own: cg.clone() shares the params",
                )
            )
        return 0

    def run_slots(self, *arrays):
        """Copies the arguments into their slots, runs, and returns the output views."""
        cdef Py_ssize_t at, count = len(arrays)
        cdef int status = 0
        cdef object given
        self._alone()
        self._busy = True
        try:
            if count:
                if count != len(self._given):
                    check_slots(arrays, len(self._given))
                for at in range(count):
                    given = arrays[at]
                    view = self._input_views[self._given[at]]
                    if not _take(given, <cnp.ndarray>view):
                        view[...] = as_input(given, view, at)
            at = 0
            with nogil:
                while at < self._count:
                    status = self._calls[at].fn(&self._calls[at])
                    if status == RLX_OK:
                        at += 1
                    elif status == RLX_JUMP:
                        at = self._calls[at].p[0].i
                        status = RLX_OK
                    else:
                        break
                if status == RLX_OK:
                    for at in range(self._feed_count):
                        memcpy(self._feeds[at].target, self._feeds[at].source, self._feeds[at].nbytes)
            if status == RLX_PYTHON_ERROR:
                raise (<object>self._calls[at].p[0].p).error
            if status == RLX_CUSTOM_ERROR:
                raise RlxError(
                    describe("a C function reports an error", where=self._used.names[at])
                )
            if status:
                raise InputError(
                    describe("an index is out of range", where=self._used.names[at])
                )
        finally:
            self._busy = False
        return self._output_views


cdef bint _take(object given, cnp.ndarray view):
    """Copies an array that fits its slot as it is; False leaves it to the checked, slower way."""
    cdef cnp.ndarray array
    cdef int axis, rank
    if not cnp.PyArray_CheckExact(given):
        return False
    array = <cnp.ndarray>given
    rank = cnp.PyArray_NDIM(view)
    if (
        cnp.PyArray_TYPE(array) != cnp.PyArray_TYPE(view)
        or cnp.PyArray_NDIM(array) != rank
        or not cnp.PyArray_ISCARRAY_RO(array)
    ):
        return False
    for axis in range(rank):
        if cnp.PyArray_DIM(array, axis) != cnp.PyArray_DIM(view, axis):
            return False
    if cnp.PyArray_DATA(array) != cnp.PyArray_DATA(view):
        memcpy(cnp.PyArray_DATA(view), cnp.PyArray_DATA(array), cnp.PyArray_NBYTES(view))
    return True
