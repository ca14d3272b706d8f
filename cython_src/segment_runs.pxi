# Part of program.pyx: the runs of a graph that computes sizes, segment by segment.

@cython.final
cdef class ExactInputs:
    """Looks whether arrays are just as some inputs say, and which values of dims they show.

    Args:
        inputs: For each input the number of its NumPy dtype and its axes: a size, or the name of a dim.
        dims: By name the least value of a dim, the largest one or -1 for no bound, and a number that divides every value.
    """

    cdef list _inputs
    cdef dict _dims

    def __cinit__(self, inputs, dict dims):
        self._inputs, self._dims = [(int(number), tuple(axes)) for number, axes in inputs], dims

    def sizes_of(self, arrays):
        """Returns the values of dims; None where an array is not just as its input says."""
        cdef dict sizes = {}
        cdef cnp.ndarray array
        cdef tuple axes
        cdef int number, axis
        cdef cnp.npy_intp size
        cdef Py_ssize_t index = 0
        if len(arrays) != len(self._inputs):
            return None
        for value in arrays:
            number, axes = self._inputs[index]
            index += 1
            if not cnp.PyArray_CheckExact(value):
                return None
            array = <cnp.ndarray>value
            if cnp.PyArray_TYPE(array) != number or cnp.PyArray_NDIM(array) != len(axes):
                return None
            if not cnp.PyArray_ISCARRAY_RO(array):
                return None
            for axis in range(cnp.PyArray_NDIM(array)):
                wanted = axes[axis]
                size = cnp.PyArray_DIM(array, axis)
                if isinstance(wanted, str):
                    known = sizes.get(wanted)
                    if known is None:
                        if not _takes(self._dims[wanted], size):
                            return None
                        sizes[wanted] = size
                    elif <cnp.npy_intp>known != size:
                        return None
                elif <cnp.npy_intp>wanted != size:
                    return None
        return sizes


cdef bint _takes(tuple bounds, int64_t value) except -1:
    """Returns whether a dim of such bounds has a value."""
    cdef int64_t least = bounds[0], most = bounds[1], multiple = bounds[2]
    return least <= value and (most < 0 or value <= most) and value % multiple == 0


@cython.final
cdef class SegmentRun:
    """The run of a segment.

    Args:
        sizes: The dims that are read before: ``(name, node, bounds, read)``, the bounds as ``ExactInputs`` takes them.
        prefixes: The nodes that are the beginning of another one's value: ``(node, source, length)``; the length is
            the name of a dim, or a function of the sizes.
        controls: Functions of the values and the sizes that run loops and branches.
        guards: A function that tells whether sizes are legal, and the names of the dims that it takes; None where all are.
        arguments: The nodes that the segment reads, and names of dims, each of which an array of shape (size, 0) shows.
        call: Computes the segment; None where there is nothing to compute.
        writes: The nodes that its first results are.
        refuse: Raises the error for a read with a value, or for sizes with the error of an operation or None.
    """

    cdef tuple _sizes, _prefixes, _controls, _guards, _arguments, _writes
    cdef object _call, _refuse

    def __cinit__(self, sizes, prefixes, controls, guards, arguments, call, writes, refuse):
        self._sizes, self._prefixes, self._controls = tuple(sizes), tuple(prefixes), tuple(controls)
        self._guards, self._arguments, self._writes = guards, tuple(arguments), tuple(writes)
        self._call, self._refuse = call, refuse

    def run(self, dict values, dict sizes):
        """Reads the sizes, and computes the values; it adds both.

        Args:
            values: The values of nodes that are known, by the ids of these.
            sizes: The values of dims that are known.

        Raises:
            SizesError: A size is none that the graph takes.
        """
        cdef tuple bounds
        cdef Py_ssize_t index
        for name, node, bounds, read in self._sizes:
            value = int(values[node])
            if not -(1 << 62) < value < 1 << 62 or not _takes(bounds, value):
                self._refuse(read, value)
            sizes[name] = value
        for node, source, length in self._prefixes:
            values[node] = values[source][: sizes[length] if isinstance(length, str) else length(sizes)]
        for control in self._controls:
            control(values, sizes)
        if self._guards is not None:
            holds, names = self._guards
            if not holds(*[sizes[name] for name in names]):
                self._refuse(sizes, None)
        if self._call is None:
            return
        arrays = [_shown(sizes[read]) if isinstance(read, str) else values[read] for read in self._arguments]
        try:
            results = self._call(*arrays)
        except GraphError as error:  # an operation of it does not take them
            self._refuse(sizes, error)
        for index in range(len(self._writes)):
            values[self._writes[index]] = results[index]


cdef cnp.ndarray _shown(cnp.npy_intp size):
    """An array of shape (size, 0)."""
    cdef cnp.npy_intp[2] dims
    dims[0], dims[1] = size, 0
    return cnp.PyArray_EMPTY(2, dims, cnp.NPY_UINT8, 0)
