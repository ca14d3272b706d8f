# Part of program.pyx: the sizes of a program that computes for many. A run takes them from the shapes of its arrays.

cdef struct rlx_shown:  # an axis that shows a dim: (size - more) * multiple / factor
    Py_ssize_t input
    Py_ssize_t axis
    int64_t more
    int64_t multiple
    int64_t factor
    int64_t least
    int64_t most


cdef class SizeBinder(OutputBinder):
    """The part of ``Program`` that knows sizes of dims: it writes what depends on them, and makes the views anew.

    Values of inputs and outputs are lost when sizes change, but for those of residents, which stay the same.
    """

    cdef int _before  # what the next run has to do first: STALE, OUTSIDE, both or nothing
    cdef SizeSteps _table  # None for a program of single sizes
    cdef SizeSteps _guards  # what holds for the sizes that it serves; None until somebody says so
    cdef int64_t* _sizes
    cdef int64_t* _new  # those of the arrays of a run
    cdef int* _axes  # the registers of the sizes of all inputs, then of all outputs
    cdef rlx_shown* _shown  # by dim
    cdef const cnp.npy_intp** _dims  # by input, the shape that a run has for it

    def __dealloc__(self):
        free(self._sizes)
        free(self._new)
        free(self._axes)
        free(self._shown)
        free(self._dims)

    @cython.critical_section
    def set_table(self, SizeSteps table not None, sizes, axes, shown):
        """Has the program compute for many sizes.

        Args:
            table: The numbers that depend on dims; the calls say where they are written.
            sizes: Values of the dims.
            axes: Registers of the sizes of each input, then of each output, one after the other.
            shown: By dim, the axis that shows it: input, axis, what is added, what the dim is a multiple of, the factor,
                the least and the largest value.
        """
        cdef Py_ssize_t index
        self._sizes = <int64_t*>calloc(max(1, table.dims), sizeof(int64_t))
        self._new = <int64_t*>calloc(max(1, table.dims), sizeof(int64_t))
        self._axes = <int*>calloc(max(1, len(axes)), sizeof(int))
        self._shown = <rlx_shown*>calloc(max(1, table.dims), sizeof(rlx_shown))
        self._dims = <const cnp.npy_intp**>calloc(max(1, self._input_count), sizeof(void*))
        if (
            self._sizes == NULL or self._new == NULL or self._axes == NULL or self._shown == NULL
            or self._dims == NULL
        ):
            raise MemoryError()
        for index, value in enumerate(sizes):
            self._sizes[index] = value
        for index, value in enumerate(axes):
            self._axes[index] = value
        for index, (which, axis, more, multiple, factor, least, most) in enumerate(shown):
            self._shown[index] = rlx_shown(which, axis, more, multiple, factor, least, most)
        self._table = table
        self._write_sizes()

    @cython.critical_section
    def set_guards(self, SizeSteps guards not None):
        """Has runs take other sizes by themselves where these guards hold."""
        self._guards = guards

    @property
    def sizes(self):
        """The values of the dims."""
        return tuple([self._sizes[index] for index in range(self._table.dims)])

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
        cdef Py_ssize_t index
        cdef int status
        for index in range(self._table.dims):
            self._new[index] = sizes[index]
        status = self._table.compute(self._new)
        if status != RLX_SIZES_KNOWN:
            self._table.refuse(self._new, status)
        self._take()

    @cython.final
    cdef int _write_sizes(self) except -1:
        """Writes what depends on sizes to calls that were linked anew."""
        cdef int status
        if self._table is not None:
            status = self._table.compute(self._sizes)
            if status != RLX_SIZES_KNOWN:
                self._table.refuse(self._sizes, status)
            self._used.write(self._table.registers)
        return 0

    @cython.final
    cdef int _take(self) except -1:
        """Takes the sizes that the table was computed for."""
        cdef Py_ssize_t index, at = 0, count = self._input_count
        cdef list inputs = [], outputs = []
        for index in range(count):
            inputs.append(self._resized(<cnp.ndarray>self._input_views[index], &at, False))
        for index in range(len(self._output_views)):
            outputs.append(self._resized(<cnp.ndarray>self._output_views[index], &at, True))
        memcpy(self._sizes, self._new, self._table.dims * sizeof(int64_t))
        self._used.write(self._table.registers)
        for index in range(count):
            free(self._copies[index])
            self._copies[index] = NULL
        self._input_views, self._output_views = tuple(inputs), tuple(outputs)
        self._blocks = [None] * len(outputs)
        rlx_clear_bits(&self._before, OUTSIDE)
        self._view_inputs()
        if self._feed_count:
            self._set_feeds(self._feed_pairs)
        return 0

    @cython.final
    cdef cnp.ndarray _resized(self, cnp.ndarray view, Py_ssize_t* at, bint read_only):
        """An array of other sizes at the place of a view; an input that no call reads has memory of its own."""
        cdef cnp.npy_intp dims[MOST_AXES]
        cdef int axis, rank = cnp.PyArray_NDIM(view)
        cdef bint same = True
        cdef cnp.ndarray result
        for axis in range(rank):
            dims[axis] = self._table.registers[self._axes[at[0]]]
            same = same and dims[axis] == cnp.PyArray_DIMS(view)[axis]
            at[0] += 1
        if same:
            return view
        base = cnp.get_array_base(view)
        if base is None:
            return cnp.PyArray_ZEROS(rank, dims, cnp.PyArray_TYPE(view), 0)
        result = cnp.PyArray_SimpleNewFromData(rank, dims, cnp.PyArray_TYPE(view), cnp.PyArray_DATA(view))
        cnp.set_array_base(result, base)
        if read_only:
            cnp.PyArray_CLEARFLAGS(result, cnp.NPY_ARRAY_WRITEABLE)
        return result

    @cython.critical_section
    cdef bint _meets(self, tuple arrays) except -1:
        """Returns whether arrays are just like the views of the arguments, also after it took their sizes."""
        cdef Py_ssize_t position
        cdef bint fits = True
        if len(arrays) != self._argument_count:
            return False
        for position in range(self._argument_count):
            if not _fits(arrays[position], &self._inputs[position]):
                fits = False
                break
        if fits:
            return True
        if self._guards is None or not self._read_sizes(arrays):
            return False
        self._take()
        return True

    @cython.final
    cdef bint _read_sizes(self, tuple arrays) noexcept:
        """Computes the table for the sizes of arrays; returns whether the program serves them and they all fit."""
        cdef Py_ssize_t position, index, at = 0
        cdef int axis
        cdef int64_t size
        cdef bint other = False
        cdef rlx_input* bound
        cdef rlx_shown* shown
        for position in range(self._input_count):
            bound = &self._inputs[position]
            self._dims[bound.index] = bound.dims
            if position < self._argument_count:
                if not _is_like(arrays[position], bound):
                    return False
                self._dims[bound.index] = cnp.PyArray_DIMS(<cnp.ndarray>arrays[position])
        for index in range(self._table.dims):
            shown = &self._shown[index]
            size = self._dims[shown.input][shown.axis] - shown.more
            if size < 0 or size > LARGEST_SIZE or size * shown.multiple % shown.factor:
                return False
            size = size * shown.multiple // shown.factor
            if size < shown.least or size > shown.most or size % shown.multiple:
                return False
            other = other or size != self._sizes[index]
            self._new[index] = size
        if not other or not self._guards.holds(self._new) or self._table.compute(self._new) != RLX_SIZES_KNOWN:
            return False
        for index in range(self._input_count):
            for axis in range(cnp.PyArray_NDIM(<cnp.ndarray>self._input_views[index])):
                if self._dims[index][axis] != self._table.registers[self._axes[at]]:
                    return False
                at += 1
        return True
