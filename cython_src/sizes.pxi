# Part of program.pyx: numbers that depend on the sizes of a run. ``rlx.sizes.program`` makes the tables.

cdef extern from "sizes.h" nogil:
    int RLX_SIZES_KNOWN
    int RLX_SIZES_OVERFLOW
    ctypedef struct rlx_size_step:
        int op
        int a
        int b
        int c
    ctypedef struct rlx_size_check:
        int place
        int relation
    int rlx_compute_sizes(const rlx_size_step*, int64_t, int64_t*, int64_t)
    bint rlx_sizes_hold(const rlx_size_check*, int64_t, const int64_t*)


@cython.final
cdef class SizeSteps:
    """Numbers computed from the values of dims.

    Registers hold the values of dims, then constants, then the result of each step. Arithmetic is checked: no number is
    ever wrong.

    Args:
        dims: How many values of dims there are.
        constants: Numbers.
        steps: ``(operation, a, b, c)`` as sizes.h has them.
        checks: ``(register, relation)``: comparisons with 0.
    """

    cdef readonly Py_ssize_t dims
    cdef int64_t* registers
    cdef Py_ssize_t _first
    cdef rlx_size_step* _steps
    cdef Py_ssize_t _step_count
    cdef rlx_size_check* _checks
    cdef Py_ssize_t _check_count

    def __cinit__(self, Py_ssize_t dims, constants, steps, checks):
        cdef Py_ssize_t index
        self.dims, self._first = dims, dims + len(constants)
        self._step_count, self._check_count = len(steps), len(checks)
        self.registers = <int64_t*>calloc(max(1, self._first + self._step_count), sizeof(int64_t))
        self._steps = <rlx_size_step*>calloc(max(1, self._step_count), sizeof(rlx_size_step))
        self._checks = <rlx_size_check*>calloc(max(1, self._check_count), sizeof(rlx_size_check))
        if self.registers == NULL or self._steps == NULL or self._checks == NULL:
            raise MemoryError()
        for index, value in enumerate(constants, dims):
            self.registers[index] = value
        for index, (op, a, b, c) in enumerate(steps):
            self._steps[index] = rlx_size_step(op, a, b, c)
        for index, (place, relation) in enumerate(checks):
            self._checks[index] = rlx_size_check(place, relation)

    def __dealloc__(self):
        free(self.registers)
        free(self._steps)
        free(self._checks)

    cdef int compute(self, const int64_t* values) noexcept nogil:
        """Computes all registers; how that went."""
        memcpy(self.registers, values, self.dims * sizeof(int64_t))
        return rlx_compute_sizes(self._steps, self._step_count, self.registers, self._first)

    @cython.critical_section
    cdef bint holds(self, const int64_t* values) noexcept:
        """Returns whether all checks hold; a number that can't be computed breaks them."""
        return self.compute(values) == RLX_SIZES_KNOWN and rlx_sizes_hold(
            self._checks, self._check_count, self.registers
        )

    cdef int refuse(self, const int64_t* values, int status) except -1:
        """Raises the error for values of dims that numbers can't be computed for."""
        found = "a number beyond 64 bits" if status == RLX_SIZES_OVERFLOW else "a division by 0"
        raise SizesError(
            describe(
                "a graph can't be computed for these sizes",
                got=f"{found} for {', '.join([str(values[index]) for index in range(self.dims)])}",
                expected="sizes whose products are below 2^63",
            )
        )

    cdef int64_t* _taken(self, tuple values) except NULL:
        """Values of dims in new memory."""
        cdef Py_ssize_t index
        cdef int64_t* result
        if len(values) != self.dims:
            raise ValueError(f"{len(values)} values of {self.dims} dims")
        result = <int64_t*>calloc(max(1, self.dims), sizeof(int64_t))
        if result == NULL:
            raise MemoryError()
        try:
            for index in range(self.dims):
                result[index] = values[index]
        except BaseException:
            free(result)
            raise
        return result

    def __call__(self, *values):
        """Returns whether all checks hold for values of the dims; a number that can't be computed breaks them."""
        cdef int64_t* taken = self._taken(values)
        try:
            return self.holds(taken)
        finally:
            free(taken)

    @cython.critical_section
    def numbers(self, places, *values):
        """Returns what some registers hold for values of the dims.

        Raises:
            SizesError: A number does not fit 64 bits, or is divided by 0.
        """
        cdef int64_t* taken = self._taken(values)
        cdef int status
        try:
            status = self.compute(taken)
            if status != RLX_SIZES_KNOWN:
                self.refuse(taken, status)
            return [self.registers[<Py_ssize_t>place] for place in places]
        finally:
            free(taken)
