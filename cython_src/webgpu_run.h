/* One run on a GPU through the C API of wgpu-native or Dawn: upload, encode, submit, map, read back.
 *
 * The declarations below are the few of webgpu.h and wgpu.h that a run needs, written for the ABI of
 * wgpu-native 29 (the release inside wgpu 0.32) and of Dawn (the one inside wgpudawn 0.32), which agree in all that
 * both have. What they do differently is in webgpu_ways.h. Nothing is linked: the functions' addresses come from the
 * library that the Python package has loaded. Nothing here allocates.
 */
#ifndef RLX_WEBGPU_RUN_H
#define RLX_WEBGPU_RUN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "clock.h"

#ifdef _MSC_VER
#include <intrin.h>
#include <windows.h>
#define RLX_LOAD(p) _InterlockedOr((volatile long *)(p), 0)
#define RLX_STORE(p, v) _InterlockedExchange((volatile long *)(p), v)
#define RLX_REST() SwitchToThread()
#else
#define RLX_LOAD(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define RLX_STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define RLX_REST() nanosleep(&(struct timespec){0, 20000}, NULL)
#endif

/* --- webgpu.h ------------------------------------------------------------------------------------- */

typedef void *rlx_handle; /* every WGPU object is an opaque pointer */

typedef struct {
    const char *data;
    size_t length;
} rlx_string; /* WGPUStringView */

typedef struct {
    const void *next;
    rlx_string label;
} rlx_label; /* WGPUCommandEncoderDescriptor, WGPUCommandBufferDescriptor */

typedef struct {
    const void *next;
    rlx_string label;
    const void *timestamps;
} rlx_pass_label; /* WGPUComputePassDescriptor */

typedef struct {
    uint64_t id;
} rlx_future; /* WGPUFuture */

typedef struct {
    rlx_future future;
    uint32_t completed;
} rlx_wait_info; /* WGPUFutureWaitInfo */

typedef void (*rlx_map_callback)(int status, rlx_string message, void *first, void *second);
typedef void (*rlx_scope_callback)(int status, int type, rlx_string message, void *first, void *second);

typedef struct {
    const void *next;
    int mode;
    rlx_map_callback callback;
    void *first, *second;
} rlx_map_info; /* WGPUBufferMapCallbackInfo, and WGPUQueueWorkDoneCallbackInfo */

typedef struct {
    const void *next;
    int mode;
    rlx_scope_callback callback;
    void *first, *second;
} rlx_scope_info; /* WGPUPopErrorScopeCallbackInfo */

enum { RLX_MAP_SUCCESS = 1, RLX_MAP_CANCELLED = 2, RLX_MAP_READ = 1, RLX_MAP_WRITE = 2, RLX_SPONTANEOUS = 3 };
/* WGPUErrorFilter and WGPUErrorType of the errors that a scope catches. */
enum { RLX_FILTER_VALIDATION = 1, RLX_FILTER_MEMORY = 2 };
enum { RLX_TYPE_NONE = 1, RLX_TYPE_MEMORY = 3 };

typedef struct {
    rlx_handle (*create_encoder)(rlx_handle device, const rlx_label *label);
    rlx_handle (*begin_pass)(rlx_handle encoder, const rlx_pass_label *label);
    void (*set_pipeline)(rlx_handle pass, rlx_handle pipeline);
    void (*set_group)(rlx_handle pass, uint32_t index, rlx_handle group, size_t n, const uint32_t *offsets);
    void (*dispatch)(rlx_handle pass, uint32_t x, uint32_t y, uint32_t z);
    void (*end_pass)(rlx_handle pass);
    void (*release_pass)(rlx_handle pass);
    void (*copy)(rlx_handle encoder, rlx_handle from, uint64_t offset, rlx_handle to, uint64_t to_offset,
                 uint64_t size);
    rlx_handle (*finish)(rlx_handle encoder, const rlx_label *label);
    void (*release_encoder)(rlx_handle encoder);
    void (*release_commands)(rlx_handle commands);
    void (*write)(rlx_handle queue, rlx_handle buffer, uint64_t offset, const void *data, size_t size);
    rlx_future (*map)(rlx_handle buffer, uint64_t mode, size_t offset, size_t size, rlx_map_info info);
    const void *(*mapped)(rlx_handle buffer, size_t offset, size_t size);
    void *(*writable)(rlx_handle buffer, size_t offset, size_t size);
    void (*unmap)(rlx_handle buffer);
    void (*push_scope)(rlx_handle device, int filter);
    rlx_future (*pop_scope)(rlx_handle device, rlx_scope_info info);
    /* Of wgpu-native alone. */
    uint64_t (*submit_for_index)(rlx_handle queue, size_t n, const rlx_handle *commands);
    uint32_t (*poll)(rlx_handle device, uint32_t wait, const uint64_t *submission);
    /* Of Dawn alone, as far as they are used. */
    void (*submit)(rlx_handle queue, size_t n, const rlx_handle *commands);
    int (*wait_any)(rlx_handle instance, size_t n, rlx_wait_info *futures, uint64_t timeout_ns);
    rlx_future (*work_done)(rlx_handle queue, rlx_map_info info);
    rlx_future (*lost)(rlx_handle device);
    /* No function of the library. */
    rlx_handle instance;
    const struct rlx_ways *ways;
} rlx_wgpu;

/* --- what a run does -------------------------------------------------------------------------------- */

typedef struct {
    rlx_handle pipeline, group;
    uint32_t x, y;
} rlx_dispatch;

typedef struct { /* host memory to a buffer */
    const void *from;
    rlx_handle to;
    uint64_t offset, size;
} rlx_upload;

typedef struct { /* buffer to buffer */
    rlx_handle from;
    uint64_t offset;
    rlx_handle to;
    uint64_t to_offset, size;
} rlx_move;

typedef struct { /* staging to host memory */
    uint64_t offset;
    void *to;
    uint64_t size;
} rlx_read;

enum { RLX_GPU_OK, RLX_GPU_ERROR, RLX_GPU_MEMORY, RLX_GPU_LOST, RLX_GPU_STOPPED };

typedef struct {
    const rlx_wgpu *api;
    rlx_handle device, queue, staging;
    uint64_t staged, submission;
    rlx_future mapping, opening; /* of the staging buffer's map, and of the upload buffer's */
    rlx_handle upload_buffer; /* mapped memory of the upload buffer, or NULL */
    uint64_t upload_bytes;
    int upload_open;  /* 0 while its map is pending, else the WGPUMapAsyncStatus */
    int64_t spin_ns;  /* how long to poll before sleeping until the device is done */
    int64_t *moved;   /* bytes uploaded, read back, copied on the device */
    size_t dispatches, uploads, sources, moves, copies, reads;
    const rlx_dispatch *dispatch;
    const rlx_upload *upload;
    const rlx_move *source; /* before the dispatches: values of other executables */
    const rlx_move *move, *copy; /* after the dispatches: moves first, then copies to the staging buffer */
    const rlx_read *read;
    int mapped;      /* 0 while the map is pending, else its WGPUMapAsyncStatus */
    int scopes;      /* error scopes that are open, or whose callback is due */
    int status;
    char message[600];
} rlx_work;

/* The differences between the libraries. */
typedef struct rlx_ways {
    int (*gone)(rlx_work *work);                              /* whether the device is known to be lost */
    void (*send)(rlx_work *work, const rlx_handle *commands); /* one submission, to be waited for */
    void (*ask)(rlx_work *work, rlx_future future);           /* whether it is done: callbacks run if so */
    void (*wait)(rlx_work *work, rlx_future future);          /* until it, or the last submission, is done */
    void (*drain)(rlx_work *work);                            /* until the last submission is done */
} rlx_ways;

static void rlx_say(rlx_work *work, rlx_string text) {
    size_t n = text.data == NULL ? 0 : text.length;
    if (n == SIZE_MAX) /* WGPU_STRLEN: it ends with a zero */
        n = strlen(text.data);
    n = n < sizeof work->message ? n : sizeof work->message - 1;
    if (n)
        memcpy(work->message, text.data, n);
    work->message[n] = 0;
}

static void rlx_on_map(int status, rlx_string text, void *first, void *second) {
    rlx_work *work = (rlx_work *)first;
    (void)second;
    if (status != RLX_MAP_SUCCESS)
        rlx_say(work, text);
    RLX_STORE(&work->mapped, status);
}

static void rlx_on_upload_buffer(int status, rlx_string text, void *first, void *second) {
    (void)text, (void)second;
    RLX_STORE(&((rlx_work *)first)->upload_open, status);
}

static void rlx_on_scope(int status, int type, rlx_string text, void *first, void *second) {
    rlx_work *work = (rlx_work *)first;
    (void)status, (void)second;
    work->scopes--;
    if (type == RLX_TYPE_NONE || type == 0)
        return;
    if (work->status == RLX_GPU_OK) {
        work->status = type == RLX_TYPE_MEMORY ? RLX_GPU_MEMORY : RLX_GPU_ERROR;
        rlx_say(work, text);
    }
}

/* Errors of the calls between the two end in ``status``, not in the log of the Python package. */
static void rlx_catch(rlx_work *work) {
    work->scopes = RLX_FILTER_MEMORY - RLX_FILTER_VALIDATION + 1;
    for (int filter = RLX_FILTER_VALIDATION; filter <= RLX_FILTER_MEMORY; filter++)
        work->api->push_scope(work->device, filter);
}

static void rlx_caught(rlx_work *work) {
    const rlx_scope_info info = {NULL, RLX_SPONTANEOUS, rlx_on_scope, work, NULL};
    for (int filter = RLX_FILTER_VALIDATION; filter <= RLX_FILTER_MEMORY; filter++) {
        const int due = work->scopes - 1;
        const rlx_future popped = work->api->pop_scope(work->device, info);
        if (work->scopes > due)
            work->api->ways->ask(work, popped);
    }
}

static int rlx_is_gone(rlx_work *work) {
    static const char text[] = "the device is lost";
    rlx_say(work, (rlx_string){text, sizeof text - 1});
    return work->status = RLX_GPU_LOST;
}

/* Writes all uploads into the mapped memory of the upload buffer, and unmaps it. False where there is no such memory,
   as in Dawn after the device was lost. Nothing of the library is called between the first and the last byte: a device
   that is lost in a call takes the memory along. */
static int rlx_fill_upload_buffer(rlx_work *work) {
    char *mapped = (char *)work->api->writable(work->upload_buffer, 0, work->upload_bytes);
    if (mapped == NULL)
        return 0;
    for (const rlx_upload *u = work->upload; u < work->upload + work->uploads; mapped += u->size, u++)
        memcpy(mapped, u->from, u->size);
    work->api->unmap(work->upload_buffer);
    return 1;
}

/* Uploads to their buffers: from the upload buffer if it is filled, else by the queue. */
static void rlx_encode_uploads(rlx_work *work, rlx_handle encoder, int filled) {
    const rlx_wgpu *api = work->api;
    uint64_t offset = 0;
    for (const rlx_upload *u = work->upload; u < work->upload + work->uploads; offset += u->size, u++) {
        if (filled)
            api->copy(encoder, work->upload_buffer, offset, u->to, u->offset, u->size);
        else
            api->write(work->queue, u->to, u->offset, u->from, u->size);
        work->moved[0] += (int64_t)u->size;
    }
}

/* Copies on the device. */
static void rlx_encode_moves(rlx_work *work, rlx_handle encoder, const rlx_move *move, size_t moves) {
    for (const rlx_move *m = move; m < move + moves; m++) {
        work->api->copy(encoder, m->from, m->offset, m->to, m->to_offset, m->size);
        work->moved[2] += (int64_t)m->size;
    }
}

/* Some dispatches, as one pass. */
static void rlx_encode_pass(rlx_work *work, rlx_handle encoder, const rlx_dispatch *d, const rlx_dispatch *end) {
    const rlx_wgpu *api = work->api;
    const rlx_pass_label label = {NULL, {"rlx", 3}, NULL};
    rlx_handle pass = api->begin_pass(encoder, &label), pipeline = NULL, group = NULL;
    for (; d < end; d++) {
        if (!d->x || !d->y) /* sizes of now leave it nothing to do */
            continue;
        if (d->pipeline != pipeline)
            api->set_pipeline(pass, pipeline = d->pipeline);
        if (d->group != group)
            api->set_group(pass, 0, group = d->group, 0, NULL);
        api->dispatch(pass, d->x, d->y, 1);
    }
    api->end_pass(pass);
    api->release_pass(pass);
}

/* Submits what was encoded. wgpu-native ends the process when a submission fails, so one that has failed is not made. */
static int rlx_send(rlx_work *work, rlx_handle encoder) {
    const rlx_wgpu *api = work->api;
    const rlx_label label = {NULL, {"rlx", 3}};
    rlx_handle commands = api->finish(encoder, &label);
    rlx_caught(work);
    if (work->status == RLX_GPU_OK)
        api->ways->send(work, &commands);
    api->release_commands(commands);
    api->release_encoder(encoder);
    return work->status;
}

/* Dispatches that are submitted together: the device computes them while the next ones are encoded. */
enum { RLX_TOGETHER = 48 };

/* Uploads, encodes and submits; ``shift`` is where in the staging buffer the results go. */
static int rlx_submit(rlx_work *work, uint64_t shift) {
    const rlx_wgpu *api = work->api;
    const rlx_label label = {NULL, {"rlx", 3}};
    work->status = RLX_GPU_OK;
    work->message[0] = 0;
    if (api->ways->gone(work))
        return rlx_is_gone(work);
    rlx_catch(work);
    int filled = 0;
    if (work->upload_buffer != NULL && !RLX_LOAD(&work->upload_open))
        api->ways->ask(work, work->opening);
    if (work->upload_buffer != NULL && RLX_LOAD(&work->upload_open) == RLX_MAP_SUCCESS) {
        /* wgpu-native ends the process when asked for the memory of a buffer that went with its device.
           Writing nothing asks whether the device is there. */
        api->write(work->queue, work->upload->to, 0, work->upload->from, 0);
        rlx_caught(work);
        if (work->status != RLX_GPU_OK)
            return work->status;
        rlx_catch(work);
        filled = rlx_fill_upload_buffer(work);
    }
    rlx_handle encoder = api->create_encoder(work->device, &label);
    rlx_encode_uploads(work, encoder, filled);
    rlx_encode_moves(work, encoder, work->source, work->sources);
    const rlx_dispatch *d = work->dispatch, *end = d + work->dispatches;
    for (; d < end; d += RLX_TOGETHER) {
        if (d > work->dispatch) {
            if (rlx_send(work, encoder) != RLX_GPU_OK)
                break;
            rlx_catch(work);
            encoder = api->create_encoder(work->device, &label);
        }
        rlx_encode_pass(work, encoder, d, (size_t)(end - d) < RLX_TOGETHER ? end : d + RLX_TOGETHER);
    }
    if (work->status == RLX_GPU_OK) {
        rlx_encode_moves(work, encoder, work->move, work->moves);
        for (const rlx_move *m = work->copy; m < work->copy + work->copies; m++)
            api->copy(encoder, m->from, m->offset, m->to, m->to_offset + shift, m->size);
        rlx_send(work, encoder);
    }
    if (filled && work->status != RLX_GPU_OK)
        RLX_STORE(&work->upload_open, RLX_MAP_CANCELLED); /* it stays unmapped and is not used any more */
    else if (filled) {
        const rlx_map_info info = {NULL, RLX_SPONTANEOUS, rlx_on_upload_buffer, work, NULL};
        RLX_STORE(&work->upload_open, 0);
        work->opening = api->map(work->upload_buffer, RLX_MAP_WRITE, 0, work->upload_bytes, info);
    }
    return work->status;
}

/* Waits until the map's callback has run. */
static int rlx_await(rlx_work *work) {
    const rlx_wgpu *api = work->api;
    if (work->spin_ns > 0) {
        const int64_t begin = rlx_clock_ns();
        while (!RLX_LOAD(&work->mapped) && rlx_clock_ns() - begin < work->spin_ns)
            api->ways->ask(work, work->mapping);
    }
    if (!RLX_LOAD(&work->mapped))
        api->ways->wait(work, work->mapping);
    /* Another thread's question may have taken our callback from the queue, and be about to call it. */
    for (int64_t done = rlx_clock_ns(); !RLX_LOAD(&work->mapped); RLX_REST()) {
        if (rlx_clock_ns() - done > 10000000000) /* give up ten seconds after the device was done */
            return work->status = RLX_GPU_LOST;
        api->ways->wait(work, work->mapping);
    }
    return work->status;
}

/* Waits for the last submission and brings what it staged into host memory. */
static int rlx_wait(rlx_work *work) {
    const rlx_wgpu *api = work->api;
    const rlx_map_info info = {NULL, RLX_SPONTANEOUS, rlx_on_map, work, NULL};
    work->status = RLX_GPU_OK;
    work->message[0] = 0;
    if (work->staged == 0) {
        api->ways->drain(work);
        return work->status;
    }
    RLX_STORE(&work->mapped, 0);
    rlx_catch(work);
    work->mapping = api->map(work->staging, RLX_MAP_READ, 0, work->staged, info);
    rlx_caught(work);
    if (work->status != RLX_GPU_OK)
        return work->status;
    if (rlx_await(work) != RLX_GPU_OK)
        return work->status;
    if (RLX_LOAD(&work->mapped) != RLX_MAP_SUCCESS)
        return work->status = RLX_GPU_LOST;
    const char *mapped = (const char *)api->mapped(work->staging, 0, work->staged);
    if (mapped == NULL)
        work->status = RLX_GPU_LOST;
    else
        for (const rlx_read *r = work->read; r < work->read + work->reads; r++) {
            memcpy(r->to, mapped + r->offset, r->size);
            work->moved[1] += (int64_t)r->size;
        }
    api->unmap(work->staging);
    return work->status;
}

/* A new upload buffer is mapped. Its state is atomic, as all that callbacks write on other threads. */
static void rlx_open_upload_buffer(rlx_work *work) { RLX_STORE(&work->upload_open, RLX_MAP_SUCCESS); }

/* Before ``work`` is freed: no callback may find it any more. */
static void rlx_forget(rlx_work *work) {
    if (work->upload_buffer == NULL || RLX_LOAD(&work->upload_open))
        return;
    work->api->unmap(work->upload_buffer); /* ends the pending map, and calls back */
    for (int tries = 0; tries < 10000 && !RLX_LOAD(&work->upload_open); tries++)
        RLX_REST();
}

#endif
