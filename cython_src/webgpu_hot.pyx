# The GPU's hot path: C functions of wgpu-native or Dawn, called in one stretch without the GIL.
"""Runs prepared GPU work through the addresses of a library's functions."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

cimport cython
cimport numpy as cnp
import numpy as np
from libc.math cimport NAN

from rlx.errors import DeviceMemoryError, describe

cnp.import_array()

include "served.pxi"
include "host_views.pxi"


cdef extern from "try_lock.h" nogil:
    ctypedef struct rlx_try_lock:
        pass
    bint rlx_acquire(rlx_try_lock* owner)
    void rlx_release(rlx_try_lock* owner, uintptr_t to)

cdef extern from "webgpu_run.h" nogil:
    ctypedef struct rlx_ways:
        pass

    ctypedef struct rlx_wgpu:
        void* instance
        const rlx_ways* ways

    ctypedef struct rlx_dispatch:
        void* pipeline
        void* group
        uint32_t x
        uint32_t y

    ctypedef struct rlx_upload:
        const void* source "from"
        void* to
        uint64_t offset
        uint64_t size

    ctypedef struct rlx_move:
        void* source "from"
        uint64_t offset
        void* to
        uint64_t to_offset
        uint64_t size

    ctypedef struct rlx_read:
        uint64_t offset
        void* to
        uint64_t size

    ctypedef struct rlx_work:
        const rlx_wgpu* api
        void* device
        void* queue
        void* staging
        uint64_t staged
        void* upload_buffer
        uint64_t upload_bytes
        int64_t spin_ns
        int64_t* moved
        size_t dispatches, uploads, sources, moves, copies, reads
        const rlx_dispatch* dispatch
        const rlx_upload* upload
        const rlx_move* source
        const rlx_move* move
        const rlx_move* copy
        const rlx_read* read
        int mapped
        int status
        char* message

    ctypedef struct rlx_string:
        pass

    ctypedef struct rlx_label:
        pass

    ctypedef struct rlx_pass_label:
        pass

    ctypedef struct rlx_future:
        pass

    ctypedef struct rlx_wait_info:
        pass

    ctypedef struct rlx_map_info:
        pass

    ctypedef struct rlx_scope_info:
        pass

    void rlx_open_upload_buffer(rlx_work* work)
    void rlx_forget(rlx_work* work)
    int RLX_GPU_OK, RLX_TOGETHER
    int RLX_MAP_SUCCESS, RLX_MAP_CANCELLED, RLX_MAP_READ, RLX_MAP_WRITE, RLX_SPONTANEOUS
    int RLX_FILTER_VALIDATION, RLX_FILTER_MEMORY, RLX_TYPE_NONE, RLX_TYPE_MEMORY

cdef extern from "webgpu_ways.h" nogil:
    const rlx_ways rlx_native
    const rlx_ways rlx_dawn

cdef extern from "webgpu_guard.h" nogil:
    int rlx_safely(int (*step)(rlx_work*, uint64_t) noexcept nogil, rlx_work* work, uint64_t argument)
    int rlx_submit(rlx_work* work, uint64_t shift)
    int rlx_wait_step(rlx_work* work, uint64_t unused)
    int rlx_run_step(rlx_work* work, uint64_t shift)
    int rlx_send_step(rlx_work* work, uint64_t commands)
    int rlx_read_step(rlx_work* work, uint64_t to)
    int rlx_stopped


def stop_all():
    """From now on every run fails at once, and nothing is freed: for a process that was forked."""
    global rlx_stopped
    rlx_stopped = 1


# Dispatches that a runner submits together.
TOGETHER = RLX_TOGETHER

# In the order of ``rlx_wgpu``, which is a table of nothing but function addresses.
FUNCTIONS = (
    "wgpuDeviceCreateCommandEncoder",
    "wgpuCommandEncoderBeginComputePass",
    "wgpuComputePassEncoderSetPipeline",
    "wgpuComputePassEncoderSetBindGroup",
    "wgpuComputePassEncoderDispatchWorkgroups",
    "wgpuComputePassEncoderEnd",
    "wgpuComputePassEncoderRelease",
    "wgpuCommandEncoderCopyBufferToBuffer",
    "wgpuCommandEncoderFinish",
    "wgpuCommandEncoderRelease",
    "wgpuCommandBufferRelease",
    "wgpuQueueWriteBuffer",
    "wgpuBufferMapAsync",
    "wgpuBufferGetConstMappedRange",
    "wgpuBufferGetMappedRange",
    "wgpuBufferUnmap",
    "wgpuDevicePushErrorScope",
    "wgpuDevicePopErrorScope",
    "wgpuQueueSubmitForIndex",
    "wgpuDevicePoll",
    "wgpuQueueSubmit",
    "wgpuInstanceWaitAny",
    "wgpuQueueOnSubmittedWorkDone",
    "wgpuDeviceGetLostFuture",
)

# The functions that each library lacks.
ABSENT = {
    "wgpu": (
        "wgpuQueueSubmit", "wgpuInstanceWaitAny", "wgpuQueueOnSubmittedWorkDone", "wgpuDeviceGetLostFuture",
    ),
    "dawn": ("wgpuQueueSubmitForIndex", "wgpuDevicePoll"),
}

# The sizes that webgpu_run.h gives to structures of webgpu.h.
SIZES = {
    "WGPUStringView": sizeof(rlx_string),
    "WGPUCommandEncoderDescriptor": sizeof(rlx_label),
    "WGPUCommandBufferDescriptor": sizeof(rlx_label),
    "WGPUComputePassDescriptor": sizeof(rlx_pass_label),
    "WGPUFuture": sizeof(rlx_future),
    "WGPUBufferMapCallbackInfo": sizeof(rlx_map_info),
    "WGPUPopErrorScopeCallbackInfo": sizeof(rlx_scope_info),
}

# The same of structures that only Dawn is called with.
DAWN_SIZES = {
    "WGPUFutureWaitInfo": sizeof(rlx_wait_info),
    "WGPUQueueWorkDoneCallbackInfo": sizeof(rlx_map_info),
}

# The numbers that it gives to names of webgpu.h.
NUMBERS = {
    "WGPUMapAsyncStatus_Success": RLX_MAP_SUCCESS,
    "WGPUMapAsyncStatus_CallbackCancelled": RLX_MAP_CANCELLED,
    "WGPUCallbackMode_AllowSpontaneous": RLX_SPONTANEOUS,
    "WGPUErrorFilter_Validation": RLX_FILTER_VALIDATION,
    "WGPUErrorFilter_OutOfMemory": RLX_FILTER_MEMORY,
    "WGPUErrorType_NoError": RLX_TYPE_NONE,
    "WGPUErrorType_OutOfMemory": RLX_TYPE_MEMORY,
}


cdef class Api:
    """The table of addresses.

    Args:
        library: "wgpu" or "dawn".
        addresses: One for each of ``FUNCTIONS``; 0 for an ``ABSENT`` function.
        instance: Handle of the library's instance; 0 where it is not needed.
    """

    cdef rlx_wgpu table

    def __cinit__(self, str library, addresses, instance):
        cdef uintptr_t* slots = <uintptr_t*>&self.table
        # Behind the functions are the instance and the ways.
        cdef Py_ssize_t known = sizeof(rlx_wgpu) // sizeof(void*) - 2
        if len(addresses) != len(FUNCTIONS) or known != len(FUNCTIONS):
            raise ValueError("an address for every function is needed")
        for index, (name, address) in enumerate(zip(FUNCTIONS, addresses)):
            if (not address) != (name in ABSENT[library]):
                raise ValueError(f"{library} and {name} do not fit")
            slots[index] = address
        self.table.instance = _pointer(instance)
        self.table.ways = &rlx_dawn if library == "dawn" else &rlx_native

    def send(self, queue, commands):
        """Submits commands that the Python package encoded. False where the device is gone."""
        cdef rlx_work work
        cdef void* encoded = _pointer(commands)
        cdef int status
        memset(&work, 0, sizeof(rlx_work))
        work.api, work.queue = &self.table, _pointer(queue)
        with nogil:
            status = rlx_safely(rlx_send_step, &work, <uint64_t><uintptr_t>encoded)
        return status == RLX_GPU_OK

    def read(self, buffer, cnp.ndarray to):
        """Copies the mapped bytes of a buffer, as many as an array has. False where the device is gone."""
        cdef rlx_work work
        cdef void* target = cnp.PyArray_DATA(to)
        cdef int status
        memset(&work, 0, sizeof(rlx_work))
        work.api, work.staging, work.staged = &self.table, _pointer(buffer), cnp.PyArray_NBYTES(to)
        with nogil:
            status = rlx_safely(rlx_read_step, &work, <uint64_t><uintptr_t>target)
        return status == RLX_GPU_OK


cdef class Dispatches:
    """``(pipeline, bind group, x, y)`` rows as C, shared by every run that makes them.

    Args:
        rows: Handles as integers.
        grids: For each row the registers of sizes that hold x and y; empty where these stay.
    """

    cdef rlx_dispatch* rows
    cdef size_t count
    cdef int* _grids
    cdef Py_ssize_t _version

    def __cinit__(self, rows, grids=()):
        self.count = len(rows)
        self.rows = <rlx_dispatch*>_table(self.count, sizeof(rlx_dispatch))
        for index, (pipeline, group, x, y) in enumerate(rows):
            self.rows[index] = rlx_dispatch(_pointer(pipeline), _pointer(group), x, y)
        if grids:
            self._grids = <int*>_table(2 * self.count, sizeof(int))
            for index, register in enumerate([register for pair in grids for register in pair]):
                self._grids[index] = register
        self._version = -1

    cdef void follow(self, HostViews views) noexcept:
        """Makes the numbers of workgroups for the sizes of now."""
        cdef size_t index
        cdef const int64_t* held
        if self._grids == NULL or self._version == views.version:
            return
        held = views._state.table.registers
        for index in range(self.count):
            self.rows[index].x = <uint32_t>held[self._grids[2 * index]]
            self.rows[index].y = <uint32_t>held[self._grids[2 * index + 1]]
        self._version = views.version

    def __dealloc__(self):
        free(self.rows)
        free(self._grids)


cdef struct rlx_length:  # bytes of a transfer that depend on sizes: some, and those of a value in whole words
    uint64_t* where
    uint64_t more
    Py_ssize_t register


cdef class Runner:
    """One submission, prepared.

    Args:
        api: The functions.
        device: Handle of the device.
        queue: Handle of its queue.
        dispatches: What is computed.
        uploads: ``(address, buffer, offset, size)`` before it.
        moves: ``(buffer, offset, buffer, offset, size)`` after it, on the device.
        copies: ``(buffer, offset, offset in the staging buffer, size)`` after those.
        staging: Handle of the staging buffer.
        staged: Bytes of it that ``wait`` maps; 0 brings nothing back.
        reads: ``(offset in the staging buffer, address, size)``.
        upload_buffer: Handle of a buffer, mapped for writing, that the uploads go through; 0 for none.
        upload_bytes: Its size.
        spin_ns: How long ``wait`` asks the device before it sleeps.
        moved: Counters of bytes uploaded, read back and moved on the device.
        keep: Owns the memory and the GPU's objects.
        views: The sizes that transfers and dispatches follow; None where they stay. The last upload is that of the words.
        lengths: ``(table, row, bytes, register)``: transfers of so many bytes and those that a register holds. Tables are
            the uploads, moves, copies and reads, by their numbers.
    """

    cdef rlx_work work
    cdef object _keep
    cdef Dispatches _dispatches
    cdef HostViews _views
    cdef rlx_length* _lengths
    cdef Py_ssize_t _length_count
    cdef Py_ssize_t _version
    cdef object _gate

    def __cinit__(
        self, Api api, device, queue, Dispatches dispatches, uploads, moves, copies, staging,
        staged, reads, upload_buffer, upload_bytes, spin_ns,
        cnp.ndarray moved, keep, HostViews views=None, lengths=(),
    ):
        cdef rlx_work* work = &self.work
        self._keep, self._dispatches, self._views = (api, moved, keep), dispatches, views
        work.api = &api.table
        work.device, work.queue = _pointer(device), _pointer(queue)
        work.staging = _pointer(staging)
        work.upload_buffer, work.upload_bytes = _pointer(upload_buffer), upload_bytes
        rlx_open_upload_buffer(work)
        work.spin_ns, work.moved = spin_ns, <int64_t*>cnp.PyArray_DATA(moved)
        work.dispatches, work.dispatch = dispatches.count, dispatches.rows
        cdef rlx_upload* upload
        cdef rlx_move* move
        cdef rlx_read* read
        work.staged = staged
        work.uploads = len(uploads)
        work.upload = upload = <rlx_upload*>_table(work.uploads, sizeof(rlx_upload))
        for index, (address, buffer, offset, size) in enumerate(uploads):
            upload[index] = rlx_upload(_pointer(address), _pointer(buffer), offset, size)
        work.moves = len(moves)
        work.move = move = <rlx_move*>_table(work.moves, sizeof(rlx_move))
        for index, (source, offset, buffer, to, size) in enumerate(moves):
            move[index] = rlx_move(_pointer(source), offset, _pointer(buffer), to, size)
        work.copies = len(copies)
        work.copy = move = <rlx_move*>_table(work.copies, sizeof(rlx_move))
        for index, (source, offset, to, size) in enumerate(copies):
            move[index] = rlx_move(_pointer(source), offset, work.staging, to, size)
        work.reads = len(reads)
        work.read = read = <rlx_read*>_table(work.reads, sizeof(rlx_read))
        for index, (offset, address, size) in enumerate(reads):
            read[index] = rlx_read(offset, _pointer(address), size)
        self._length_count, self._version = len(lengths), -1
        self._lengths = <rlx_length*>_table(self._length_count, sizeof(rlx_length))
        for index, (table, row, size, register) in enumerate(lengths):
            self._lengths[index] = rlx_length(self._length(table, row), size, register)

    cdef uint64_t* _length(self, int table, Py_ssize_t row) except NULL:
        """The bytes of a transfer."""
        if table == 0:
            return <uint64_t*>&self.work.upload[row].size
        if table == 3:
            return <uint64_t*>&self.work.read[row].size
        return <uint64_t*>&(self.work.move if table == 1 else self.work.copy)[row].size

    cdef int run_step(self, int (*step)(rlx_work*, uint64_t) noexcept nogil, uint64_t argument) noexcept:
        """Makes a step, for the sizes of now."""
        cdef HostViews views = self._views
        cdef rlx_length* length
        cdef Py_ssize_t index
        cdef size_t uploads = self.work.uploads
        cdef int status
        cdef bint fresh = views is None or not views.stale
        if views is not None and self._version != views.version:
            for index in range(self._length_count):
                length = &self._lengths[index]
                length.where[0] = length.more + <uint64_t>(views._state.table.registers[length.register] + 3) // 4 * 4
            self._version = views.version
            self._dispatches.follow(views)
        if views is not None and fresh:
            self.work.uploads -= 1
        with nogil:
            status = rlx_safely(step, &self.work, argument)
        self.work.uploads = uploads
        if not fresh and status == RLX_GPU_OK:
            views.stale = False
            self.work.moved[0] -= cnp.PyArray_NBYTES(views.words)
        return status

    def set_gate(self, gate):
        """Has runs of compiled calls read under a lock: weights do not change between the parts of a run."""
        self._gate = gate

    cdef int run_gated(self) except -1:
        """Submits and waits."""
        return self.run_step(rlx_run_step, 0) if self._gate is None else self._gate.read(self.run)

    cdef int set_targets(self, targets) except -1:
        """Has each run copy values of other buffers to these places ``(buffer, offset)`` before its dispatches."""
        cdef rlx_move* source = <rlx_move*>_table(len(targets), sizeof(rlx_move))
        for index, (buffer, offset) in enumerate(targets):
            source[index] = rlx_move(NULL, 0, _pointer(buffer), offset, 0)
        free(<void*>self.work.source)
        self.work.sources, self.work.source = len(targets), source
        return 0

    cdef int set_source(self, Py_ssize_t index, buffer, uint64_t offset, uint64_t nbytes) except -1:
        """Sets the value that the next run copies to one of these places."""
        cdef rlx_move* source = <rlx_move*>&self.work.source[index]
        source.source, source.offset, source.size = _pointer(buffer), offset, (nbytes + 3) // 4 * 4
        return 0

    def __dealloc__(self):
        if self.work.api != NULL and not rlx_stopped:
            rlx_forget(&self.work)
        free(<void*>self.work.upload)
        free(<void*>self.work.source)
        free(<void*>self.work.move)
        free(<void*>self.work.copy)
        free(<void*>self.work.read)
        free(self._lengths)

    def submit(self, uint64_t shift=0):
        """Uploads and enqueues; the results go to ``shift`` in the staging buffer. 0 if all is well."""
        return self.run_step(rlx_submit, shift)

    def wait(self):
        """Waits for the last submission and reads back what was staged. 0 if all is well."""
        cdef int status
        with nogil:
            status = rlx_safely(rlx_wait_step, &self.work, 0)
        return status

    def run(self):
        """``submit``, then ``wait``. 0 if all is well."""
        return self.run_step(rlx_run_step, 0)

    def error(self):
        """``(status, message)`` of the last call."""
        return self.work.status, (<bytes>self.work.message).decode(errors="replace")


cdef void* _table(size_t count, size_t size) except NULL:
    cdef void* found = calloc(count + 1, size)
    if found == NULL:
        raise MemoryError()
    return found


cdef void* _pointer(address):
    return <void*><uintptr_t>address


cdef bint _fit(tuple arrays, tuple views):
    """Returns whether every argument fits its slot without conversion."""
    cdef Py_ssize_t index
    cdef int axis
    cdef cnp.ndarray view
    if len(arrays) != len(views):
        return False
    for index in range(len(arrays)):
        view = <cnp.ndarray>views[index]
        if not _is_like(arrays[index], view):
            return False
        for axis in range(cnp.PyArray_NDIM(view)):
            if cnp.PyArray_DIM(<cnp.ndarray>arrays[index], axis) != cnp.PyArray_DIM(view, axis):
                return False
    return True


cdef void _copy(cnp.ndarray array, cnp.ndarray view) noexcept:
    memcpy(cnp.PyArray_DATA(view), cnp.PyArray_DATA(array), cnp.PyArray_NBYTES(view))


include "webgpu_entry.pxi"
