# Part of program.pyx: binds the inputs of a run. docs/explanation/binding.md draws the states of an input.

cdef class InputBinder:
    """The part of ``Program`` that binds inputs.

    Each input is an argument or a resident. A run binds an array to each argument: the array passed by the caller, or
    the input's view. A resident is bound to its view until ``set_residents`` says otherwise. Kernel calls are pointed
    at the bound array. A Python function in the graph reads a slot in the arena, so the bound array is copied to that
    slot. No run depends on the arrays of the run before, but for states: calls write to their slots. An argument for a state
    is copied to its slot before the run, and a resident has its value there.
    """

    cdef Calls _used
    cdef rlx_input* _inputs  # arguments first, then residents
    cdef Py_ssize_t _input_count
    cdef Py_ssize_t _argument_count
    cdef Py_ssize_t _copied_residents  # residents that are copied to their slots before each run
    cdef bint _views_bound  # whether all arguments are bound to the views already
    cdef void** _copies  # by input, memory for an argument that calls would overwrite; allocated at first use
    cdef uintptr_t* _slots
    cdef tuple _input_views
    cdef tuple _states
    cdef char* _arena
    cdef char* _arena_end
    cdef char* _inputs_end
    cdef rlx_copier _copier
    cdef int64_t _threads

    @cython.final
    cdef inline void _copy(self, void* target, const void* source, Py_ssize_t nbytes) noexcept nogil:
        """Copies bytes, with all threads where there are many."""
        if nbytes:  # an empty array may have no memory
            self._copier(target, source, nbytes, self._threads)

    @cython.final
    cdef inline void _copy_array(self, cnp.ndarray target, cnp.ndarray source) noexcept:
        """Copies an array to one of the same type. Releases the GIL where that takes long."""
        cdef void* where = cnp.PyArray_DATA(target)
        cdef const void* data = cnp.PyArray_DATA(source)
        cdef Py_ssize_t nbytes = cnp.PyArray_NBYTES(target)
        if nbytes < LARGE:
            self._copy(where, data, nbytes)
        else:
            with nogil:
                self._copy(where, data, nbytes)

    @cython.final
    cdef int _set_residents(self, indices) except -1:
        """Sorts the inputs into arguments and residents."""
        cdef Py_ssize_t position
        count = self._input_count
        arguments = [index for index in range(count) if index not in indices]
        self._argument_count = len(arguments)
        order = [*arguments, *(index for index in range(count) if index in indices)]
        for position, index in enumerate(order):
            self._inputs[position].index = index
        self._view_inputs()
        return 0

    @cython.final
    cdef void _view_inputs(self) noexcept:
        """Notes the views of all inputs, after a change of views or of residents."""
        cdef Py_ssize_t position
        cdef cnp.ndarray view
        cdef rlx_input* bound
        for position in range(self._input_count):
            bound = &self._inputs[position]
            view = <cnp.ndarray>self._input_views[bound.index]
            bound.slot = <void*>self._slots[bound.index]
            bound.is_state = bound.index in self._states
            bound.view = cnp.PyArray_DATA(view)
            bound.nbytes = cnp.PyArray_NBYTES(view)
            bound.dims = cnp.PyArray_DIMS(view)
            bound.rank = cnp.PyArray_NDIM(view)
            bound.type = cnp.PyArray_TYPE(view)
        self._bind_residents()

    @cython.final
    cdef void _bind_residents(self) noexcept:
        """Binds residents to their views, after a change of residents or of calls."""
        cdef Py_ssize_t position
        cdef rlx_input* bound
        self._views_bound = False
        self._copied_residents = 0
        for position in range(self._argument_count, self._input_count):
            bound = &self._inputs[position]
            self._used.rebind(bound.index, bound.view)
            self._copied_residents += self._is_copied(bound) and not bound.is_state

    @cython.final
    cdef inline bint _is_copied(self, rlx_input* bound) noexcept:
        """Returns whether runs copy the view of an input to its slot."""
        return not self._used.is_rebindable(bound.index) and bound.slot != NULL and bound.slot != bound.view

    @cython.final
    cdef void _copy_residents(self) noexcept:
        """Copies the views of residents to the slots that Python functions read."""
        cdef Py_ssize_t position
        for position in range(self._argument_count, self._input_count):
            if self._is_copied(&self._inputs[position]) and not self._inputs[position].is_state:
                self._copy(self._inputs[position].slot, self._inputs[position].view, self._inputs[position].nbytes)

    @cython.final
    cdef inline bint _is_overwritten(self, const char* data) noexcept:
        """Returns whether calls may write to the memory at an address."""
        return self._inputs_end <= data < self._arena_end

    @cython.final
    cdef int _bind_or_copy(self, rlx_input* bound, const char* data) except -1:
        """Binds an array of the type of the view to an input, or a copy of it."""
        cdef void** copy = &self._copies[bound.index]
        if not self._used.is_rebindable(bound.index):
            if bound.slot != NULL and bound.slot != <void*>data:
                self._copy(bound.slot, data, bound.nbytes)
            return 0
        if self._is_overwritten(data) and bound.nbytes:
            if copy[0] == NULL:
                copy[0] = malloc(bound.nbytes)
                if copy[0] == NULL:
                    raise MemoryError()
            self._copy(copy[0], data, bound.nbytes)
            data = <const char*>copy[0]
        self._used.rebind(bound.index, <void*>data)
        return 0

    @cython.final
    cdef int _bind_views(self) except -1:
        """Binds all arguments to their views."""
        cdef Py_ssize_t position
        cdef rlx_input* bound
        self._views_bound = True
        for position in range(self._argument_count):
            bound = &self._inputs[position]
            if self._used.is_rebindable(bound.index):
                self._used.rebind(bound.index, bound.view)
            elif self._is_copied(bound):
                self._copy(bound.slot, bound.view, bound.nbytes)
                self._views_bound = False  # the next run copies again
        return 0

    @cython.final
    cdef inline bint _bind_fitting(self, tuple arrays) except -1:
        """Binds one array to each argument, in order. False where one is not just like its view."""
        cdef Py_ssize_t position
        cdef rlx_input* bound
        cdef const char* data
        cdef bint copied = False
        if len(arrays) != self._argument_count:
            return False
        self._views_bound = False
        for position in range(self._argument_count):
            bound = &self._inputs[position]
            if not _fits(arrays[position], bound):
                return False
            data = <const char*>cnp.PyArray_DATA(<cnp.ndarray>arrays[position])
            if not self._is_overwritten(data) and self._used.is_rebindable(bound.index):
                self._used.rebind(bound.index, <void*>data)
            else:
                copied = True
        if copied:
            for position in range(self._argument_count):
                self._bind_or_copy(
                    &self._inputs[position], <const char*>cnp.PyArray_DATA(<cnp.ndarray>arrays[position])
                )
        return True

    @cython.final
    cdef list _bind_converted(self, tuple arrays):
        """Converts arguments of another dtype, strided ones, and other objects that hold arrays, and binds them.

        A conversion runs code of the caller, which may change the other arguments. So all are converted before the
        address of one is taken.

        Returns:
            The converted arrays, which have to live until the run is over.
        """
        cdef Py_ssize_t position
        cdef list converted = []
        check_slots(arrays, self._argument_count)
        for position in range(self._argument_count):
            converted.append(as_input(arrays[position], self._input_views[self._inputs[position].index], position))
        for position in range(self._argument_count):
            view = self._input_views[self._inputs[position].index]
            converted[position] = contiguous(converted[position], view, position)
        for position in range(self._argument_count):
            self._bind_or_copy(
                &self._inputs[position], <const char*>cnp.PyArray_DATA(<cnp.ndarray>converted[position])
            )
        return converted
