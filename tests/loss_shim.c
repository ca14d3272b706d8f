/* A library's functions, each of which may first destroy the device: for tests of a device that is lost at a
   certain step of a run. Built by test_device_loss.py. */
#include "webgpu_run.h"

static rlx_wgpu real;
static void (*destroy)(rlx_handle device);
static rlx_handle victim;
static int left;
/* Whether mapped memory is in use, which a device that is lost takes along; and how many calls were made meanwhile. */
static int held, calls_while_held;

static void step(void) {
    calls_while_held += held;
    if (left > 0 && --left == 0)
        destroy(victim);
}

static rlx_handle create_encoder(rlx_handle a, const rlx_label *b) { step(); return real.create_encoder(a, b); }
static rlx_handle begin_pass(rlx_handle a, const rlx_pass_label *b) { step(); return real.begin_pass(a, b); }
static void set_pipeline(rlx_handle a, rlx_handle b) { step(); real.set_pipeline(a, b); }
static void set_group(rlx_handle a, uint32_t b, rlx_handle c, size_t d, const uint32_t *e) {
    step();
    real.set_group(a, b, c, d, e);
}
static void dispatch(rlx_handle a, uint32_t b, uint32_t c, uint32_t d) { step(); real.dispatch(a, b, c, d); }
static void end_pass(rlx_handle a) { step(); real.end_pass(a); }
static void release_pass(rlx_handle a) { step(); real.release_pass(a); }
static void copy(rlx_handle a, rlx_handle b, uint64_t c, rlx_handle d, uint64_t e, uint64_t f) {
    step();
    real.copy(a, b, c, d, e, f);
}
static rlx_handle finish(rlx_handle a, const rlx_label *b) { step(); return real.finish(a, b); }
static void release_encoder(rlx_handle a) { step(); real.release_encoder(a); }
static void release_commands(rlx_handle a) { step(); real.release_commands(a); }
static uint64_t submit_for_index(rlx_handle a, size_t b, const rlx_handle *c) {
    step();
    return real.submit_for_index(a, b, c);
}
static uint32_t poll_device(rlx_handle a, uint32_t b, const uint64_t *c) { step(); return real.poll(a, b, c); }
static void write_buffer(rlx_handle a, rlx_handle b, uint64_t c, const void *d, size_t e) {
    step();
    real.write(a, b, c, d, e);
}
static rlx_future map(rlx_handle a, uint64_t b, size_t c, size_t d, rlx_map_info e) {
    step();
    return real.map(a, b, c, d, e);
}
static const void *mapped(rlx_handle a, size_t b, size_t c) {
    step();
    const void *found = real.mapped(a, b, c);
    held = found != NULL;
    return found;
}
static void *writable(rlx_handle a, size_t b, size_t c) {
    step();
    void *found = real.writable(a, b, c);
    held = found != NULL;
    return found;
}
static void unmap(rlx_handle a) {
    held = 0;
    step();
    real.unmap(a);
}
static void push_scope(rlx_handle a, int b) { step(); real.push_scope(a, b); }
static rlx_future pop_scope(rlx_handle a, rlx_scope_info b) { step(); return real.pop_scope(a, b); }

static void submit(rlx_handle a, size_t b, const rlx_handle *c) { step(); real.submit(a, b, c); }
static int wait_any(rlx_handle a, size_t b, rlx_wait_info *c, uint64_t d) { step(); return real.wait_any(a, b, c, d); }
static rlx_future work_done(rlx_handle a, rlx_map_info b) { step(); return real.work_done(a, b); }

static rlx_future lost(rlx_handle a) { step(); return real.lost(a); }

static rlx_wgpu shim = {create_encoder, begin_pass,   set_pipeline,     set_group,   dispatch,
                        end_pass,       release_pass, copy,             finish,      release_encoder,
                        release_commands, write_buffer, map,            mapped,      writable,
                        unmap,          push_scope,   pop_scope,        submit_for_index, poll_device,
                        submit,         wait_any,     work_done,        lost,        NULL,
                        NULL};

/* ``addresses``: those of ``n`` functions of the library in, 0 for one that it lacks; those of the functions above out. */
void shim_install(void **addresses, int n, void *destroys) {
    memcpy(&real, addresses, n * sizeof(void *));
    for (int at = 0; at < n; at++)
        if (addresses[at] != NULL)
            addresses[at] = ((void **)&shim)[at];
    destroy = (void (*)(rlx_handle))destroys;
}

/* How many functions were called while mapped memory was in use. */
int shim_calls_while_held(void) { return calls_while_held; }

/* The device is destroyed before the ``steps``-th call from now on. Returns how many calls were left of the last. */
int shim_arm(void *device, int steps) {
    const int before = left;
    victim = device, left = steps;
    return before;
}
