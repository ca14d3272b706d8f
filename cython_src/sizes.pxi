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
    ctypedef struct rlx_size_table:
        int64_t dims
        int64_t first
        int64_t step_count
        int64_t check_count
        int64_t* registers
        rlx_size_step* steps
        rlx_size_check* checks
    ctypedef struct rlx_shown:
        pass
    ctypedef struct rlx_run_sizes:
        rlx_size_table* table
        rlx_size_table* guards
        int64_t* now
        int64_t* others
        rlx_shown* shown
        int64_t inputs
        int* ranks
        int* axes
        const cnp.npy_intp** shapes
    int rlx_compute_table(rlx_size_table*, const int64_t*)
    bint rlx_table_holds(rlx_size_table*, const int64_t*)
    bint rlx_take_shapes(rlx_run_sizes*)


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

    cdef rlx_size_table _t

    def __cinit__(self, Py_ssize_t dims, constants, steps, checks):
        cdef Py_ssize_t index
        cdef rlx_size_table* t = &self._t
        t.dims, t.first = dims, dims + len(constants)
        t.step_count, t.check_count = len(steps), len(checks)
        t.registers = <int64_t*>calloc(max(1, t.first + t.step_count), sizeof(int64_t))
        t.steps = <rlx_size_step*>calloc(max(1, t.step_count), sizeof(rlx_size_step))
        t.checks = <rlx_size_check*>calloc(max(1, t.check_count), sizeof(rlx_size_check))
        if t.registers == NULL or t.steps == NULL or t.checks == NULL:
            raise MemoryError()
        for index, value in enumerate(constants, dims):
            t.registers[index] = value
        for index, (op, a, b, c) in enumerate(steps):
            t.steps[index] = rlx_size_step(op, a, b, c)
        for index, (place, relation) in enumerate(checks):
            t.checks[index] = rlx_size_check(place, relation)

    def __dealloc__(self):
        free(self._t.registers)
        free(self._t.steps)
        free(self._t.checks)

    cdef int compute(self, const int64_t* values) except -1:
        """Computes all registers.

        Raises:
            SizesError: A number does not fit 64 bits, or is divided by 0.
        """
        cdef int status = rlx_compute_table(&self._t, values)
        if status != RLX_SIZES_KNOWN:
            self.refuse(values, status)
        return 0

    cdef int refuse(self, const int64_t* values, int status) except -1:
        """Raises the error for values of dims that numbers can't be computed for."""
        found = "a number beyond 64 bits" if status == RLX_SIZES_OVERFLOW else "a division by 0"
        raise SizesError(
            describe(
                "a graph can't be computed for these sizes",
                got=f"{found} for {', '.join([str(values[index]) for index in range(self._t.dims)])}",
                expected="sizes whose products are below 2^63",
            )
        )

    cdef int64_t* _taken(self, tuple values) except NULL:
        """Values of dims in new memory."""
        cdef Py_ssize_t index
        cdef int64_t* result
        if len(values) != self._t.dims:
            raise ValueError(f"{len(values)} values of {self._t.dims} dims")
        result = <int64_t*>calloc(max(1, self._t.dims), sizeof(int64_t))
        if result == NULL:
            raise MemoryError()
        try:
            for index in range(self._t.dims):
                result[index] = values[index]
        except BaseException:
            free(result)
            raise
        return result

    @cython.critical_section
    def __call__(self, *values):
        """Returns whether all checks hold for values of the dims; a number that can't be computed breaks them."""
        cdef int64_t* taken = self._taken(values)
        try:
            return rlx_table_holds(&self._t, taken)
        finally:
            free(taken)

    @cython.critical_section
    def numbers(self, places, *values):
        """Returns what some registers hold for values of the dims.

        Raises:
            SizesError: A number does not fit 64 bits, or is divided by 0.
        """
        cdef int64_t* taken = self._taken(values)
        try:
            self.compute(taken)
            return [self._t.registers[<Py_ssize_t>place] for place in places]
        finally:
            free(taken)


@cython.final
cdef class RunSizes:
    """The sizes that a program computes for, and how it takes others from the shapes of arrays.

    Args:
        table: The numbers that depend on dims, for this program alone.
        sizes: Values of the dims.
        ranks: The number of axes of each input.
        axes: Registers of the sizes of each input, then of each output, one after the other.
        shown: By dim, the axis that shows it: input, axis, what is added, what the dim is a multiple of, the factor, the
            least and the largest value.

    Attributes:
        table: See above.
        address: Where compiled code finds the ``rlx_run_sizes``.
    """

    cdef readonly SizeSteps table
    cdef SizeSteps _guards
    cdef rlx_size_table _guard_table  # with registers of its own: clones of a program share guards
    cdef rlx_run_sizes state

    def __cinit__(self, SizeSteps table not None, sizes, ranks, axes, shown):
        cdef Py_ssize_t index
        cdef int64_t dims = table._t.dims
        cdef rlx_run_sizes* state = &self.state
        self.table, state.table, state.inputs = table, &table._t, len(ranks)
        state.now = <int64_t*>calloc(max(1, 2 * dims), sizeof(int64_t))
        state.others = state.now + dims
        state.shown = <rlx_shown*>calloc(max(1, dims), sizeof(rlx_shown))
        state.ranks = <int*>calloc(max(1, len(ranks)), sizeof(int))
        state.axes = <int*>calloc(max(1, len(axes)), sizeof(int))
        state.shapes = <const cnp.npy_intp**>calloc(max(1, len(ranks)), sizeof(void*))
        if (
            state.now == NULL or state.shown == NULL or state.ranks == NULL or state.axes == NULL
            or state.shapes == NULL
        ):
            raise MemoryError()
        for index, value in enumerate(sizes):
            state.now[index] = value
        for index, value in enumerate(ranks):
            state.ranks[index] = value
        for index, value in enumerate(axes):
            state.axes[index] = value
        for index, fields in enumerate(shown):
            for place, value in enumerate(fields):
                (<int64_t*>&state.shown[index])[<Py_ssize_t>place] = value
        table.compute(state.now)

    def __dealloc__(self):
        free(self.state.now)
        free(self.state.shown)
        free(self.state.ranks)
        free(self.state.axes)
        free(self.state.shapes)
        free(self._guard_table.registers)

    @property
    def address(self):
        return <uintptr_t>&self.state

    @property
    def now(self):
        """The values of the dims."""
        return tuple([self.state.now[index] for index in range(self.table._t.dims)])

    def set_guards(self, SizeSteps guards not None):
        """Has runs take other sizes by themselves where these guards hold."""
        cdef size_t nbytes
        if guards is self._guards:
            return
        free(self._guard_table.registers)
        self._guards, self._guard_table = guards, guards._t
        nbytes = max(1, guards._t.first + guards._t.step_count) * sizeof(int64_t)
        self._guard_table.registers = <int64_t*>malloc(nbytes)
        if self._guard_table.registers == NULL:
            raise MemoryError()
        memcpy(self._guard_table.registers, guards._t.registers, nbytes)
        self.state.guards = &self._guard_table

    cpdef int set(self, tuple sizes) except -1:
        """Takes other sizes.

        Raises:
            SizesError: A number does not fit 64 bits, or is divided by 0. The sizes stay as they were.
        """
        cdef int64_t* taken = self.table._taken(sizes)
        try:
            self.table.compute(taken)
            memcpy(self.state.now, taken, self.table._t.dims * sizeof(int64_t))
        except SizesError:
            self.table.compute(self.state.now)
            raise
        finally:
            free(taken)
        return 0
