# Part of program.pyx: where the calls of a run read its inputs.

cdef class TakesInputs:
    """The part of ``Program`` that deals with inputs."""

    cdef Calls _used
    cdef rlx_slot* _given  # what run_slots takes an argument for
    cdef Py_ssize_t _given_count
    cdef void** _copies  # of arguments in memory that calls write to, by input; allocated when first needed
    cdef Py_ssize_t _most_copies
    cdef uintptr_t* _slots
    cdef Py_ssize_t _filled  # how many inputs have a view outside the arena
    cdef bint _away  # whether a run without arguments has to call _home
    cdef bint _shown  # whether somebody may look at the input views between runs
    cdef list _held  # of each input, the argument that a run without arguments reads; None for the view
    cdef tuple _input_views
    cdef char* _arena
    cdef char* _arena_end
    cdef char* _inputs_end
    cdef rlx_copier _copier
    cdef int64_t _threads
    cdef int64_t _spin

    @cython.final
    cdef inline void _copy(self, void* target, const void* source, Py_ssize_t nbytes) noexcept nogil:
        """Copies bytes, many of them on all threads."""
        if nbytes:  # what is empty may have no memory
            self._copier(target, source, nbytes, self._threads, self._spin)

    @cython.final
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

    @cython.final
    cdef void _home(self) noexcept:
        """All inputs are read in their views, or in slots that are filled from them."""
        cdef Py_ssize_t at
        if self._away:
            self._settle_inputs()
            for at in range(len(self._input_views)):
                self._used.point(at, cnp.PyArray_DATA(<cnp.ndarray>self._input_views[at]))
            self._fill(True)
            self._away = self._filled > 0 or not self._shown

    @cython.final
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

    @cython.critical_section
    def show_inputs(self):
        """From now on ``input_views`` hold the inputs of the last run by name. Any thread may call it."""
        self._shown = True
        self._settle_inputs()

    @property
    def shown(self):
        """Whether somebody may look at the input views between runs."""
        return self._shown

    @cython.critical_section
    def fill(self, which, array):
        """Puts an array into an input's view."""
        self._held[which] = None
        self._input_views[which][...] = array

    @cython.final
    cdef inline bint _is_filled(self, Py_ssize_t which) noexcept:
        """Whether an input's view is not its slot, so that runs fill the slot."""
        cdef uintptr_t view
        view = <uintptr_t>cnp.PyArray_DATA(<cnp.ndarray>self._input_views[which])
        return self._slots[which] != 0 and self._slots[which] != view

    @cython.final
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

    @cython.final
    cdef inline bint _written(self, const char* data) noexcept:
        """Whether calls may write to what stands at an address."""
        return self._inputs_end <= data < self._arena_end

    @cython.final
    cdef int _bring(self, rlx_slot* slot, const char* data) except -1:
        """Lets an input be read from an argument just like its view, or from a copy of it."""
        cdef void** copy = &self._copies[slot.which]
        if not self._used.movable(slot.which):
            self._copy(slot.memory, data, slot.nbytes)
            return 0
        if self._written(data) and slot.nbytes:
            if copy[0] == NULL:
                copy[0] = malloc(slot.nbytes)
                if copy[0] == NULL:
                    raise MemoryError()
            self._copy(copy[0], data, slot.nbytes)
            data = <const char*>copy[0]
        self._used.point(slot.which, <void*>data)
        self._away = True
        return 0

    @cython.final
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

    @cython.final
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

    @cython.final
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
