# Part of program.pyx: where the calls of a run write its outputs.

cdef class OutputBinder(InputBinder):
    """The part of ``Program`` that binds outputs: to the arena, or to arrays that a run returns."""

    cdef tuple _output_views
    cdef bint _outputs_pinned  # whether outputs stand in the arena after every run
    cdef list _blocks  # by output, the block that holds it since the last run; None for the arena
    cdef Py_ssize_t* _alias_of  # by output, the first output at the same address of the arena
    cdef rlx_feed* _feeds
    cdef Py_ssize_t _feed_count
    cdef tuple _feed_pairs
    cdef object _allocate

    @cython.critical_section
    def set_feeds(self, pairs):
        """Copies outputs to inputs after each later run.

        Args:
            pairs: ``(input, output)`` of one size.
        """
        self._set_feeds(tuple(pairs))

    @cython.final
    cdef int _set_feeds(self, tuple pairs) except -1:
        cdef rlx_feed* feeds
        cdef cnp.ndarray source, target
        cdef Py_ssize_t index
        feeds = <rlx_feed*>calloc(max(1, len(pairs)), sizeof(rlx_feed))
        if feeds == NULL:
            raise MemoryError()
        for index, (which, output) in enumerate(pairs):
            target, source = self._input_views[which], self._output_views[output]
            feeds[index].output = output
            feeds[index].target = cnp.PyArray_DATA(target)
            feeds[index].source = cnp.PyArray_DATA(source)
            feeds[index].nbytes = cnp.PyArray_NBYTES(source)
        free(self._feeds)
        self._feeds, self._feed_count, self._feed_pairs = feeds, len(pairs), pairs
        return 0

    @cython.final
    cdef inline void _feed(self) noexcept nogil:
        """Copies outputs to the inputs that ``set_feeds`` names."""
        cdef Py_ssize_t index
        for index in range(self._feed_count):
            self._copy(self._feeds[index].target, self._feeds[index].source, self._feeds[index].nbytes)

    @cython.critical_section
    def pin_outputs(self):
        """Keeps outputs in the arena after every later run. Any thread may call it."""
        self._outputs_pinned = True
        self._settle_outputs()

    @cython.critical_section
    def settle_outputs(self):
        """Copies outputs of the last run from other memory to the arena."""
        self._settle_outputs()

    @cython.final
    cdef int _settle_outputs(self) except -1:
        cdef Py_ssize_t index
        cdef cnp.ndarray view
        for index in range(len(self._blocks)):
            if self._blocks[index] is not None:
                view = <cnp.ndarray>self._output_views[index]
                self._copy(
                    cnp.PyArray_DATA(view),
                    cnp.PyArray_DATA((<Block>self._blocks[index])._memory),
                    cnp.PyArray_NBYTES(view),
                )
                self._blocks[index] = None
        return 0

    @cython.critical_section
    def forget_outputs(self):
        """Drops the outputs of the last run by name."""
        self._blocks = [None] * len(self._blocks)

    @cython.final
    cdef list _redirect_outputs(self, list blocks):
        """Makes an array for each output and has calls write the large ones there; notes those in ``blocks``."""
        cdef Py_ssize_t index, inputs = len(self._input_views)
        cdef cnp.ndarray view
        cdef Block block
        cdef list outputs = []
        for index in range(len(self._output_views)):
            view = <cnp.ndarray>self._output_views[index]
            if cnp.PyArray_NBYTES(view) < LARGE:
                outputs.append(
                    cnp.PyArray_EMPTY(
                        cnp.PyArray_NDIM(view), cnp.PyArray_DIMS(view), cnp.PyArray_TYPE(view), 0
                    )
                )
                continue
            block = _block(cnp.PyArray_NBYTES(view), self._allocate)
            outputs.append(_array_in(block, view))
            if self._used.is_rebindable(inputs + index) and not self._outputs_pinned:
                blocks[index] = block
        for index in range(len(blocks)):
            if blocks[index] is not None:
                self._redirect(index, cnp.PyArray_DATA((<Block>blocks[index])._memory))
        return outputs

    @cython.final
    cdef void _restore_outputs(self, list blocks) noexcept:
        """Has calls write the outputs to the arena again."""
        cdef Py_ssize_t index
        for index in range(len(blocks)):
            if blocks[index] is not None:
                self._redirect(index, cnp.PyArray_DATA(<cnp.ndarray>self._output_views[index]))

    @cython.final
    cdef void _redirect(self, Py_ssize_t output, void* address) noexcept:
        """Has calls write and read an output at an address, and feeds copy it from there."""
        cdef Py_ssize_t index
        self._used.rebind(len(self._input_views) + output, address)
        for index in range(self._feed_count):
            if self._alias_of[self._feeds[index].output] == output:
                self._feeds[index].source = address

    @cython.final
    cdef void _copy_outputs(self, list outputs, list blocks) noexcept:
        """Copies the outputs that calls wrote to the arena to the arrays that are returned."""
        cdef Py_ssize_t index, first
        for index in range(len(outputs)):
            if blocks[index] is None:
                first = self._alias_of[index]
                self._copy_array(
                    <cnp.ndarray>outputs[index],
                    <cnp.ndarray>(self._output_views if blocks[first] is None else outputs)[first],
                )
