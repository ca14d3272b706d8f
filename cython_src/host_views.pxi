# Part of webgpu_hot.pyx: the host's side of an executable's inputs and outputs, and what depends on their sizes.

cdef extern from "sizes.h" nogil:
    ctypedef struct rlx_size_table:
        int64_t* registers
    ctypedef struct rlx_run_sizes:
        rlx_size_table* table
        int* axes
        const cnp.npy_intp** shapes
    bint rlx_take_shapes(rlx_run_sizes*)


@cython.final
cdef class HostViews:
    """Views of the inputs and outputs of an executable, and for a graph with dims the sizes that its dispatches read.

    Args:
        argument_slots: The memory that is uploaded before a run on arguments, as writable arrays: one per input.
        input_views: The same of a run on the input views.
        output_views: Read-only arrays, one per output.
        sizes: A ``rlx._ext.program.RunSizes``; None without dims.
        words: Registers of the words that dispatches read: a number, or a numerator and a denominator; -1 for none.

    Attributes:
        argument_slots: See above, for the sizes of now.
        input_views: The same.
        output_views: The same.
        words: The words for the sizes of now.
        stale: Whether the device has other words.
        version: How often the sizes changed.
        staged: A weak reference to the run whose results stand in the staging memory; None where nobody waits for one.
    """

    cdef readonly tuple argument_slots, input_views, output_views
    cdef readonly cnp.ndarray words
    cdef public bint stale
    cdef readonly Py_ssize_t version
    cdef public object staged
    cdef object _sizes
    cdef rlx_run_sizes* _state
    cdef list _places

    def __cinit__(self, tuple argument_slots, tuple input_views, tuple output_views, sizes=None, words=()):
        cdef uintptr_t address
        self.argument_slots, self.input_views = argument_slots, input_views
        self.output_views, self._sizes, self._places = output_views, sizes, list(words)
        if sizes is not None:
            address = sizes.address
            self._state = <rlx_run_sizes*>address
            self.words = np.zeros((max(1, len(words)) + 3) // 4 * 4, np.uint32)
            if not self._write_words():
                self.resize(sizes.now)

    def resize(self, tuple sizes):
        """Takes other sizes. The values of inputs and outputs are lost. The caller holds the lock of the graph.

        Raises:
            SizesError: A number that depends on sizes does not fit 64 bits.
            DeviceMemoryError: A number that dispatches read has more than 32 bits.
        """
        before = self._sizes.now
        self._sizes.set(sizes)
        if not self._follow(before):
            raise DeviceMemoryError(
                describe("a kernel counts further than a GPU does", got=f"sizes {sizes}", expected="at most 32 bits")
            )

    cpdef int settle(self) except -1:
        """Takes the results out of the staging memory, before another run writes there."""
        if self.staged is not None:
            run, self.staged = self.staged(), None
            if run is not None:
                run.wait()
        return 0

    def grids(self, registers):
        """Returns what some pairs of registers hold."""
        cdef int64_t* held = self._state.table.registers
        return [(held[<Py_ssize_t>x], held[<Py_ssize_t>y]) for x, y in registers]

    cdef bint _write_words(self) except -1:
        """Writes the words that dispatches read; returns whether all have 32 bits."""
        cdef uint32_t* word = <uint32_t*>cnp.PyArray_DATA(self.words)
        cdef const int64_t* held = self._state.table.registers
        cdef Py_ssize_t above, below
        cdef int64_t number
        cdef float quotient
        self.stale = True
        for above, below in self._places:
            number = held[above]
            if below >= 0:
                quotient = <float>(<double>number / <double>held[below]) if held[below] else NAN
                memcpy(word, &quotient, sizeof(float))
            elif number < -0x80000000 or number > 0xffffffff:
                return False
            else:
                word[0] = <uint32_t>number
            word += 1
        return True

    cdef bint _follow(self, tuple before) except -1:
        """Takes the sizes that the table was computed for; returns False, with those of before, where a word is too large."""
        if not self._write_words():
            self._sizes.set(before)
            self._write_words()
            return False
        cdef const int* at = self._state.axes
        cdef const int* again = at
        cdef const int64_t* held = self._state.table.registers
        self.input_views = tuple([_resized(view, held, &again, False) for view in self.input_views])
        self.argument_slots = tuple([_resized(view, held, &at, False) for view in self.argument_slots])
        self.output_views = tuple([_resized(view, held, &at, True) for view in self.output_views])
        self.version += 1
        return True

    cdef bint _meets(self, tuple arrays, tuple positions) except -1:
        """Returns whether arguments for some inputs are like their views, after it took their sizes."""
        cdef Py_ssize_t index, place
        cdef cnp.ndarray view
        if self._state == NULL or len(arrays) != len(positions):
            return False
        for index in range(len(self.argument_slots)):
            self._state.shapes[index] = cnp.PyArray_DIMS(<cnp.ndarray>self.argument_slots[index])
        for index in range(len(positions)):
            place = positions[index]
            view = <cnp.ndarray>self.argument_slots[place]
            if not _is_like(arrays[index], view):
                return False
            self._state.shapes[place] = cnp.PyArray_DIMS(<cnp.ndarray>arrays[index])
        before = self._sizes.now
        return rlx_take_shapes(self._state) and self._follow(before)


cdef bint _is_like(object value, cnp.ndarray view) noexcept:
    """Returns whether an argument is an array just like a view, but for the sizes of its axes."""
    return (
        cnp.PyArray_CheckExact(value)
        and cnp.PyArray_TYPE(<cnp.ndarray>value) == cnp.PyArray_TYPE(view)
        and cnp.PyArray_NDIM(<cnp.ndarray>value) == cnp.PyArray_NDIM(view)
        and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>value)
    )
