/* A panic of wgpu-native becomes a status.
 *
 * wgpu-native is Rust. Some of its functions panic where a device is gone: a submission, the address of mapped
 * memory. No other function does the same work, and a device may go at any time, so that asking before each
 * call is not enough. A panic looks for a frame of the stack that handles it, and ends the process when there
 * is none. The frame below has a personality routine (the function that an unwinder asks what a frame wants)
 * which leaves the search with a jump to the frame's caller. Nothing is unwound, so what the panicking function
 * held is never released: it holds no lock, but it does hold a reference to the device, which then lives until
 * the process ends. NVIDIA's driver gives a process about 64 devices.
 *
 * Where the compiler or the platform has no such tables, a panic ends the process as before.
 */
#ifndef RLX_WEBGPU_GUARD_H
#define RLX_WEBGPU_GUARD_H

#include "webgpu_ways.h"

#if defined(__ELF__) && defined(__GNUC__) && (defined(__x86_64__) || defined(__aarch64__))

#include <setjmp.h>
#include <unwind.h>

static __thread jmp_buf *rlx_way_out;

#if __has_attribute(noclone)
#define RLX_ONE_COPY __attribute__((noinline, noclone))
#else
#define RLX_ONE_COPY __attribute__((noinline))
#endif

__attribute__((used)) static _Unwind_Reason_Code rlx_personality(int version, _Unwind_Action actions,
                                                                 _Unwind_Exception_Class kind,
                                                                 struct _Unwind_Exception *panic,
                                                                 struct _Unwind_Context *context) {
    (void)version, (void)kind, (void)panic, (void)context;
    if ((actions & _UA_SEARCH_PHASE) && rlx_way_out != NULL)
        longjmp(*rlx_way_out, 1);
    return _URC_CONTINUE_UNWIND;
}

/* The frame. 0x1b: the routine's address is relative, in 4 bytes. */
RLX_ONE_COPY static int rlx_step(int (*step)(rlx_work *, uint64_t), rlx_work *work,
                                                       uint64_t argument) {
    __asm__ volatile(".cfi_personality 0x1b, rlx_personality");
    int status = step(work, argument);
    __asm__ volatile("" : : : "memory"); /* keeps the call from becoming a jump, which leaves no frame */
    return status;
}

static int rlx_guarded(int (*step)(rlx_work *, uint64_t), rlx_work *work, uint64_t argument) {
    jmp_buf here;
    if (_setjmp(here)) {
        static const char text[] = "wgpu-native gave up: the device is lost";
        rlx_way_out = NULL;
        rlx_say(work, (rlx_string){text, sizeof text - 1});
        return work->status = RLX_GPU_LOST;
    }
    rlx_way_out = &here;
    const int status = rlx_step(step, work, argument);
    rlx_way_out = NULL;
    return status;
}

#else

static int rlx_guarded(int (*step)(rlx_work *, uint64_t), rlx_work *work, uint64_t argument) {
    return step(work, argument);
}

#endif

/* --- the steps -------------------------------------------------------------------------------------- */

static int rlx_wait_step(rlx_work *work, uint64_t unused) {
    (void)unused;
    return rlx_wait(work);
}

static int rlx_run_step(rlx_work *work, uint64_t shift) {
    return rlx_submit(work, shift) ? work->status : rlx_wait(work);
}

/* Commands that the Python package encoded; ``argument`` is their handle. */
static int rlx_send_step(rlx_work *work, uint64_t argument) {
    const rlx_handle commands = (rlx_handle)(uintptr_t)argument;
    work->api->ways->send(work, &commands);
    return RLX_GPU_OK;
}

/* The mapped bytes of ``staging`` to the address ``argument``. */
static int rlx_read_step(rlx_work *work, uint64_t argument) {
    const void *mapped = work->api->mapped(work->staging, 0, work->staged);
    if (mapped == NULL)
        return work->status = RLX_GPU_LOST;
    memcpy((void *)(uintptr_t)argument, mapped, work->staged);
    return RLX_GPU_OK;
}

/* Set in a process that was forked from one that used the driver: calling it would hang. */
static int rlx_stopped;

static int rlx_safely(int (*step)(rlx_work *, uint64_t), rlx_work *work, uint64_t argument) {
    static const char text[] = "the process was forked from one that used WebGPU";
    if (!rlx_stopped)
        return rlx_guarded(step, work, argument);
    rlx_say(work, (rlx_string){text, sizeof text - 1});
    return work->status = RLX_GPU_STOPPED;
}

#endif
