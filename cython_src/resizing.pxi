# Part of program.pyx: the sizes of a program that computes for many. A run takes them from the shapes of its arrays.

cdef class SizeBinder(OutputBinder):
    """The part of ``Program`` that knows sizes of dims: it writes what depends on them, and makes the views anew.

    Values of inputs and outputs are lost when sizes change, but for those of residents, which stay the same.
    """

    cdef int _before  # what the next run has to do first: STALE, OUTSIDE, both or nothing
    cdef RunSizes _sizes  # None for a program of single sizes

    @cython.critical_section
    def set_sizes(self, RunSizes sizes not None):
        """Has the program compute for many sizes; the calls say where numbers of the table are written."""
        self._sizes = sizes
        self._write_sizes()

    @property
    def input_views(self):
        """Writable arrays, one per input."""
        return self._input_views

    @property
    def output_views(self):
        """Read-only arrays, one per output."""
        return self._output_views

    @cython.critical_section
    def resize(self, *sizes):
        """Has later runs compute for other sizes, for which there is memory.

        Raises:
            SizesError: A number does not fit 64 bits, or is divided by 0.
        """
        self._sizes.set(sizes)
        self._take()

    @cython.final
    cdef int _write_sizes(self) except -1:
        """Writes what depends on sizes to calls that were linked anew."""
        if self._sizes is not None:
            self._used.write(self._sizes.state.table.registers)
        return 0

    @cython.final
    cdef int _take(self) except -1:
        """Takes the sizes that the table was computed for."""
        cdef Py_ssize_t index
        cdef const int* at = self._sizes.state.axes
        cdef const int64_t* registers = self._sizes.state.table.registers
        inputs = tuple([_resized(view, registers, &at, False) for view in self._input_views])
        outputs = tuple([_resized(view, registers, &at, True) for view in self._output_views])
        self._used.write(registers)
        for index in range(self._input_count):
            free(self._copies[index])
            self._copies[index] = NULL
        self._input_views, self._output_views = inputs, outputs
        self._blocks = [None] * len(outputs)
        rlx_clear_bits(&self._before, OUTSIDE)
        self._view_inputs()
        if self._feed_count:
            self._set_feeds(self._feed_pairs)
        return 0

    @cython.critical_section
    cdef bint _meets(self, tuple arrays, bint other) except -1:
        """Returns whether arrays are just like the views of the arguments, also after it took their sizes."""
        cdef Py_ssize_t position
        cdef bint fits = not other
        if len(arrays) != self._argument_count:
            return False
        for position in range(self._argument_count if fits else 0):
            if not _fits(arrays[position], &self._inputs[position]):
                fits = False
                break
        if fits:
            return True
        if self._sizes is None or not self._read_sizes(arrays):
            return False
        self._take()
        return True

    @cython.final
    cdef bint _read_sizes(self, tuple arrays) noexcept:
        """Computes the table for the sizes of arrays; returns whether the program serves them and they all fit."""
        cdef Py_ssize_t position
        cdef rlx_input* bound
        for position in range(self._input_count):
            bound = &self._inputs[position]
            self._sizes.state.shapes[bound.index] = bound.dims
            if position < self._argument_count:
                if not _is_like(arrays[position], bound):
                    return False
                self._sizes.state.shapes[bound.index] = cnp.PyArray_DIMS(<cnp.ndarray>arrays[position])
        return rlx_take_shapes(&self._sizes.state)
