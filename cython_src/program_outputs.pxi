# Part of program.pyx: where the calls of a run write its outputs.

cdef class GivesOutputs(TakesInputs):
    """The part of ``Program`` that deals with outputs."""

    cdef tuple _output_views
    cdef bint _watched  # whether somebody may look at outputs in the arena
    cdef list _blocks  # of each output, the block that has it since the last run; None for the arena
    cdef Py_ssize_t* _first  # of each output, the first one that stands at the same place of the arena
    cdef rlx_feed* _feeds
    cdef Py_ssize_t _feed_count
    cdef object _allocate

    @cython.critical_section
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

    @cython.final
    cdef inline void _feed(self) noexcept nogil:
        """Inputs take the outputs that ``set_feeds`` names."""
        cdef Py_ssize_t at
        for at in range(self._feed_count):
            self._copy(self._feeds[at].target, self._feeds[at].source, self._feeds[at].nbytes)

    @cython.critical_section
    def show_outputs(self):
        """From now on outputs stand in the arena after every run. Any thread may call it."""
        self._watched = True
        self._settle_outputs()

    @cython.critical_section
    def settle_outputs(self):
        """Copies the outputs of the last run to the arena, as far as they were written elsewhere."""
        self._settle_outputs()

    @cython.final
    cdef int _settle_outputs(self) except -1:
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
        return 0

    @cython.critical_section
    def forget(self):
        """Drops what the last run by name has read and written in place."""
        self._held = [None] * len(self._held)
        self._blocks = [None] * len(self._blocks)

    @cython.final
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

    @cython.final
    cdef void _inward(self, list blocks) noexcept:
        """Calls write the outputs to the arena again."""
        cdef Py_ssize_t at
        for at in range(len(blocks)):
            if blocks[at] is not None:
                self._write_at(at, cnp.PyArray_DATA(<cnp.ndarray>self._output_views[at]))

    @cython.final
    cdef void _write_at(self, Py_ssize_t output, void* address) noexcept:
        """From now on calls write and read an output there, and feeds take it from there."""
        cdef Py_ssize_t at
        self._used.point(len(self._input_views) + output, address)
        for at in range(self._feed_count):
            if self._first[self._feeds[at].output] == output:
                self._feeds[at].source = address

    @cython.final
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
