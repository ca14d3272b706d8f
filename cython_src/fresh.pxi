# Part of program.pyx: arrays that a run returns, in memory that is used again when the arrays are gone.

ctypedef int64_t (*rlx_runner)(const rlx_call*, int64_t, int*) noexcept nogil
ctypedef void (*rlx_copier)(void*, const void*, int64_t, int64_t) noexcept nogil

cdef enum:
    # From this many bytes on a run by name reads an argument where it is, and writes an output where it is returned.
    LARGE = 1 << 15
    # Blocks have a multiple of this many bytes.
    BLOCK_UNIT = 1 << 12
    # The largest number of idle blocks. The most recently used blocks are kept.
    MOST_IDLE = 64
    MOST_IDLE_BYTES = 1 << 28

# Memory of blocks that nothing uses, what was used last at the end. Whoever holds the GIL changes it, or is in a
# critical section of ``_idle_lock``: an object of its own, since calls on the list are critical sections of the list.
cdef object _idle_lock = object()
cdef list _idle = []
cdef Py_ssize_t _idle_bytes = 0


@cython.final
@cython.no_gc
cdef class Block:
    """Memory of one array that a run has returned. It is idle again when the array and its views are gone.

    The last reference may go in any thread, and long after the graph.
    """

    cdef cnp.ndarray _memory

    def __dealloc__(self):
        global _idle_bytes
        cdef list gone = []  # freed when the list of idle blocks is whole again
        if self._memory is None:
            return
        with cython.critical_section(_idle_lock):
            _idle.append(self._memory)
            _idle_bytes += cnp.PyArray_NBYTES(self._memory)
            while _idle_bytes > MOST_IDLE_BYTES or len(_idle) > MOST_IDLE:
                _idle_bytes -= cnp.PyArray_NBYTES(<cnp.ndarray>_idle[0])
                gone.append(_idle.pop(0))


cdef Block _block(Py_ssize_t nbytes, allocate):
    """A block of at least so many bytes: an idle one, or new memory."""
    global _idle_bytes
    cdef Py_ssize_t index, size = (nbytes + BLOCK_UNIT - 1) // BLOCK_UNIT * BLOCK_UNIT
    cdef Block block = Block.__new__(Block)
    with cython.critical_section(_idle_lock):
        for index in range(len(_idle) - 1, -1, -1):
            if cnp.PyArray_NBYTES(<cnp.ndarray>_idle[index]) == size:
                block._memory = <cnp.ndarray>_idle.pop(index)
                _idle_bytes -= size
                return block
    block._memory = allocate(size)
    return block


cdef cnp.ndarray _array_in(Block block, cnp.ndarray like):
    """An array of the shape and dtype of another one, which keeps a block in use."""
    cdef cnp.ndarray result = cnp.PyArray_SimpleNewFromData(
        cnp.PyArray_NDIM(like),
        cnp.PyArray_DIMS(like),
        cnp.PyArray_TYPE(like),
        cnp.PyArray_DATA(block._memory),
    )
    cnp.set_array_base(result, block)
    return result


def idle_bytes():
    """Bytes of idle blocks."""
    return _idle_bytes


cdef void _free_idle() noexcept:
    """``free_idle`` for destructors: names of Python are gone when the interpreter ends."""
    global _idle_bytes
    cdef list gone  # freed when nothing refers to the list of idle blocks any more
    with cython.critical_section(_idle_lock):
        gone = _idle[:]
        _idle.clear()
        _idle_bytes = 0


def free_idle():
    """Gives the memory of idle blocks back to the system."""
    _free_idle()
