/* How wgpu-native and Dawn submit and wait, which webgpu.h leaves open or wgpu.h adds.
 *
 * wgpu-native numbers submissions and waits for a number. Dawn gives a future for each thing that takes a while, and waits
 * for futures; its instance has to allow waits with a time limit, as the one that wgpudawn makes does.
 */
#ifndef RLX_WEBGPU_WAYS_H
#define RLX_WEBGPU_WAYS_H

#include "webgpu_run.h"

/* --- wgpu-native ---------------------------------------------------------------------------------- */

/* Its calls say so themselves. */
static int rlx_native_gone(rlx_work *work) {
    (void)work;
    return 0;
}

static void rlx_native_send(rlx_work *work, const rlx_handle *commands) {
    work->submission = work->api->submit_for_index(work->queue, 1, commands);
}

static void rlx_native_ask(rlx_work *work, rlx_future future) {
    (void)future;
    work->api->poll(work->device, 0, NULL);
}

static void rlx_native_drain(rlx_work *work) { work->api->poll(work->device, 1, &work->submission); }

static void rlx_native_wait(rlx_work *work, rlx_future future) {
    (void)future;
    rlx_native_drain(work);
}

static const rlx_ways rlx_native = {rlx_native_gone, rlx_native_send, rlx_native_ask, rlx_native_wait,
                                    rlx_native_drain};

/* --- Dawn ----------------------------------------------------------------------------------------- */

/* Calls on a lost device do nothing, and no scope hears of it. */
static int rlx_dawn_gone(rlx_work *work) {
    rlx_wait_info info = {work->api->lost(work->device), 0};
    work->api->wait_any(work->api->instance, 1, &info, 0);
    return info.completed != 0;
}

static void rlx_dawn_send(rlx_work *work, const rlx_handle *commands) {
    work->api->submit(work->queue, 1, commands);
}

static void rlx_dawn_within(rlx_work *work, rlx_future future, uint64_t timeout_ns) {
    rlx_wait_info info = {future, 0};
    work->api->wait_any(work->api->instance, 1, &info, timeout_ns);
}

static void rlx_dawn_ask(rlx_work *work, rlx_future future) { rlx_dawn_within(work, future, 0); }

static void rlx_dawn_wait(rlx_work *work, rlx_future future) { rlx_dawn_within(work, future, UINT64_MAX); }

static void rlx_dawn_drain(rlx_work *work) {
    const rlx_map_info info = {NULL, RLX_SPONTANEOUS, rlx_on_map, work, NULL};
    RLX_STORE(&work->mapped, 0);
    rlx_catch(work);
    work->mapping = work->api->work_done(work->queue, info);
    rlx_caught(work);
    if (work->status == RLX_GPU_OK && rlx_await(work) == RLX_GPU_OK &&
        (RLX_LOAD(&work->mapped) != RLX_MAP_SUCCESS || rlx_dawn_gone(work)))
        rlx_is_gone(work);
}

static const rlx_ways rlx_dawn = {rlx_dawn_gone, rlx_dawn_send, rlx_dawn_ask, rlx_dawn_wait, rlx_dawn_drain};

#endif
