# Part of program.pyx: what a program is made of. Calls on fixed addresses, the kernel that calls Python, and times.

cdef int _call_python(const rlx_call* call) noexcept with gil:
    """Runs a Python function amid the compiled kernels: the first parameter is the object.

    Python's arithmetic treats subnormal numbers as it did before the run: the first operand says how.
    """
    cdef rlx_floats before = rlx_floats_enter((<const rlx_floats*>call.ins[0])[0])
    function = <object>(<const rlx_python*>call.p).function
    try:
        return RLX_OK if function() else RLX_PYTHON_ERROR
    except BaseException as error:  # of a signal handler, before the function could catch it
        function.error = error
        return RLX_PYTHON_ERROR
    finally:
        rlx_floats_set(before)


def python_kernel():
    """Address of the kernel that calls the Python object in its first parameter.

    The object takes no arguments, returns whether it went well, and otherwise keeps the exception in
    its attribute ``error``.
    """
    return <uintptr_t><void*>_call_python


cdef struct rlx_time:
    int64_t call
    int64_t start
    int64_t end


cdef class Times:
    """The time of every call of a run. It grows: how many trips a loop makes depends on the values."""

    cdef rlx_time* _rows
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _count

    def __dealloc__(self):
        free(self._rows)

    cdef bint add(self, int64_t call, int64_t start, int64_t end) noexcept nogil:
        """Stores one time; False without memory."""
        cdef rlx_time* rows
        cdef Py_ssize_t capacity
        if self._count == self._capacity:
            capacity = max(64, 2 * self._capacity)
            rows = <rlx_time*>realloc(self._rows, capacity * sizeof(rlx_time))
            if rows == NULL:
                return False
            self._rows, self._capacity = rows, capacity
        self._rows[self._count] = rlx_time(call, start, end)
        self._count += 1
        return True

    def take(self):
        """``(number of the call, start, end)`` rows in ns, int64, oldest first; they are kept no longer."""
        rows = np.empty((self._count, 3), np.int64)
        if self._count:
            memcpy(cnp.PyArray_DATA(<cnp.ndarray>rows), self._rows, self._count * sizeof(rlx_time))
        self._count = 0
        return rows


cdef struct rlx_size_place:  # a number that depends on sizes
    void* where
    int above
    int below  # the register of a denominator, where the number is a double; -1 where it is none


@cython.final
cdef class Calls:
    """Kernel calls on fixed addresses.

    Args:
        calls: ``(kernel address, input addresses, output addresses, int64 parameters, name, split)``. A
            split is None, or the words of ``struct rlx_split`` (parallel.h); those that lack are 0.
        slots: Address of every input of the graph, then of every output, that calls may find elsewhere as
            well; 0 for others. An address that stands twice counts where it stands first.
        keep: Objects that own the memory at the addresses.
        sized: ``(call, whether in its split, word, register, register of a denominator or -1)``: numbers of parameters,
            and of splits, that ``write`` takes from the registers of a ``SizeSteps``. A denominator makes it a double.
    """

    cdef rlx_call* rows
    cdef Py_ssize_t count
    cdef Py_ssize_t _slots
    cdef list names
    cdef void*** _spots  # where the calls keep the address of each slot, those of slot 0 first
    cdef Py_ssize_t* _starts
    cdef rlx_split* _splits
    cdef rlx_size_place* _sized
    cdef Py_ssize_t _sized_count
    cdef object _keep

    def __cinit__(self, calls, slots, keep, sized=()):
        cdef Py_ssize_t index, k, spots = 0
        cdef uintptr_t address
        result = {slot: [] for slot in slots if slot}
        self.count, self._slots = len(calls), len(slots)
        self.names = [call[4] for call in calls]
        self._keep = (keep, [call[3] for call in calls])
        self.rows = <rlx_call*>calloc(max(1, self.count), sizeof(rlx_call))
        self._splits = <rlx_split*>calloc(max(1, self.count), sizeof(rlx_split))
        if self.rows == NULL or self._splits == NULL:
            raise MemoryError()
        for index, (kernel, inputs, outputs, params, _, split) in enumerate(calls):
            if len(inputs) > RLX_INPUTS or len(outputs) > RLX_OUTPUTS:
                raise ValueError(
                    f"{self.names[index]}: {len(inputs)} inputs and {len(outputs)} outputs, "
                    f"where {RLX_INPUTS} and {RLX_OUTPUTS} fit"
                )
            address = kernel
            self.rows[index].fn = <rlx_kernel><void*>address
            self.rows[index].parts = 1
            if split is not None:
                self.rows[index].split = &self._splits[index]
                for k, value in enumerate(split):
                    (<int64_t*>&self._splits[index])[k] = value
            for k, value in enumerate(inputs):
                address = value
                self.rows[index].ins[k] = <void*>address
                if value in result:
                    result[value].append(<uintptr_t>&self.rows[index].ins[k])
                    spots += 1
            for k, value in enumerate(outputs):
                address = value
                self.rows[index].out[k] = <void*>address
                if value in result:
                    result[value].append(<uintptr_t>&self.rows[index].out[k])
                    spots += 1
            address = params.ctypes.data
            self.rows[index].p = <const void*>address
        self._spots = <void***>calloc(max(1, spots), sizeof(void**))
        self._starts = <Py_ssize_t*>calloc(len(slots) + 1, sizeof(Py_ssize_t))
        if self._spots == NULL or self._starts == NULL:
            raise MemoryError()
        spots = 0
        for index, slot in enumerate(slots):
            for address in result.pop(slot, ()):
                self._spots[spots] = <void**>address
                spots += 1
            self._starts[index + 1] = spots
        self._place_sizes(sized)

    def __dealloc__(self):
        free(self.rows)
        free(self._splits)
        free(self._spots)
        free(self._starts)
        free(self._sized)

    cdef int _place_sizes(self, sized) except -1:
        """Notes the places of numbers that depend on sizes."""
        cdef Py_ssize_t index, call, word
        cdef void* where
        self._sized_count = len(sized)
        self._sized = <rlx_size_place*>calloc(max(1, self._sized_count), sizeof(rlx_size_place))
        if self._sized == NULL:
            raise MemoryError()
        for index, (call, of_split, word, above, below) in enumerate(sized):
            where = (<int64_t*>&self._splits[call] if of_split else <int64_t*>self.rows[call].p) + word
            self._sized[index] = rlx_size_place(where, above, below)
        return 0

    cdef void write(self, const int64_t* registers) noexcept nogil:
        """Writes the numbers that depend on sizes."""
        cdef Py_ssize_t index
        cdef rlx_size_place* place
        for index in range(self._sized_count):
            place = &self._sized[index]
            if place.below < 0:
                (<int64_t*>place.where)[0] = registers[place.above]
            else:
                (<double*>place.where)[0] = <double>registers[place.above] / <double>registers[place.below]

    def resize(self, SizeSteps table not None, *sizes):
        """Computes a table for sizes, and writes the numbers that depend on them.

        Raises:
            SizesError: A number does not fit 64 bits, or is divided by 0.
        """
        cdef int64_t* taken = table._taken(sizes)
        try:
            table.compute(taken)
            self.write(table._t.registers)
        finally:
            free(taken)

    def rebindable(self):
        """Returns, by slot, whether only calls use it, so that they can be bound to another address."""
        return [self.is_rebindable(index) for index in range(self._slots)]

    cdef void set_callers_floats(self, const rlx_floats* floats) noexcept:
        """Tells calls of Python where the caller's mode for subnormal numbers stands."""
        cdef Py_ssize_t index
        for index in range(self.count):
            if self.rows[index].fn == <rlx_kernel>_call_python:
                self.rows[index].ins[0] = <void*>floats

    cdef inline bint is_rebindable(self, Py_ssize_t which) noexcept:
        """Returns whether calls can be bound to another address for a slot."""
        return self._starts[which + 1] > self._starts[which]

    cdef inline void rebind(self, Py_ssize_t which, void* address) noexcept:
        """Binds the calls that use a slot to an address."""
        cdef Py_ssize_t index
        for index in range(self._starts[which], self._starts[which + 1]):
            self._spots[index][0] = address
