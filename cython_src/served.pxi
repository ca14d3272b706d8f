# Part of program.pyx and of webgpu_hot.pyx: what programs of both have for runs of many sizes.

# The calls of a program that SizedRuns makes; it is their first argument.
cdef struct rlx_served:
    # Whether it takes arrays, also after it took their sizes; the flag says that they have other sizes than its views.
    bint (*meets)(object, tuple, bint) except -1
    tuple (*named)(object, object, tuple)  # the arguments among named inputs, in their order; None where that fails
    bint (*run_fitting)(object, tuple) except -1  # runs on arrays that are just like the views; whether they are
    int (*run)(object, tuple) except -1
    bint (*place)(object, tuple) except -1  # copies arrays to what the next submitted run uploads; whether they fit
    list (*run_fresh)(object, tuple)
    tuple (*outputs)(object)


cdef enum:
    MOST_AXES = 32

cdef cnp.ndarray _resized(cnp.ndarray view, const int64_t* registers, const int** at, bint read_only):
    """An array of other sizes at the place of a view; one whose memory is its own gets other memory."""
    cdef cnp.npy_intp dims[MOST_AXES]
    cdef int axis, rank = cnp.PyArray_NDIM(view)
    cdef bint same = True
    cdef cnp.ndarray result
    for axis in range(rank):
        dims[axis] = registers[at[0][0]]
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
