/* Threads of the system, as far as the pool needs them: POSIX (Linux, macOS) or Windows.

   rlx_mutex, rlx_condition: may be used as they are in static memory, and once rlx_*_init has made them anew.
   RLX_THREAD(name, argument): the head of a function that a thread runs; it ends with RLX_THREAD_END.
   rlx_start(work, argument, &thread): starts a thread; whether that worked.
   rlx_self(): the calling thread.
   rlx_pause(): lets the processor rest for some cycles.
   rlx_nap(): gives the processor away for some 20 microseconds.
   rlx_processor(): the processor that runs the caller, -1 where threads can't be kept off one.
   rlx_keep_off(processor, threads, count): has threads run where the process may, but for a processor. The affinity of the
   calling thread does not matter, since it may be bound to one processor. */
#ifndef RLX_SYSTEM_THREADS_H
#define RLX_SYSTEM_THREADS_H

#if defined(__linux__)
#define _GNU_SOURCE /* affinities */
#endif
#include <stdint.h>

#define RLX_STACK_BYTES (1 << 20)

static inline void rlx_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) && defined(__GNUC__)
    __asm__ volatile("yield");
#endif
}

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

typedef SRWLOCK rlx_mutex;
typedef CONDITION_VARIABLE rlx_condition;
typedef char rlx_thread; /* nothing is asked of a thread that runs */

static inline void rlx_mutex_init(rlx_mutex *mutex) { InitializeSRWLock(mutex); }
static inline void rlx_condition_init(rlx_condition *condition) { InitializeConditionVariable(condition); }
static inline void rlx_lock(rlx_mutex *mutex) { AcquireSRWLockExclusive(mutex); }
static inline void rlx_unlock(rlx_mutex *mutex) { ReleaseSRWLockExclusive(mutex); }
static inline void rlx_wake(rlx_condition *condition) { WakeConditionVariable(condition); }
static inline void rlx_wait(rlx_condition *condition, rlx_mutex *mutex)
{
    SleepConditionVariableSRW(condition, mutex, INFINITE, 0);
}

#define RLX_THREAD(name, argument) static DWORD WINAPI name(LPVOID argument)
#define RLX_THREAD_END return 0
static inline int rlx_start(LPTHREAD_START_ROUTINE work, void *argument, rlx_thread *thread)
{
    const HANDLE handle = CreateThread(NULL, RLX_STACK_BYTES, work, argument, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    (void)thread;
    return handle && CloseHandle(handle);
}
static inline rlx_thread rlx_self(void) { return 0; }

/* The shortest sleep is a tick of the clock, up to 16 milliseconds: another thread that is ready gets the processor. */
static inline void rlx_nap(void) { SwitchToThread(); }

#else
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

typedef pthread_mutex_t rlx_mutex;
typedef pthread_cond_t rlx_condition;
typedef pthread_t rlx_thread;

static inline void rlx_mutex_init(rlx_mutex *mutex) { pthread_mutex_init(mutex, NULL); }
static inline void rlx_condition_init(rlx_condition *condition) { pthread_cond_init(condition, NULL); }
static inline void rlx_lock(rlx_mutex *mutex) { pthread_mutex_lock(mutex); }
static inline void rlx_unlock(rlx_mutex *mutex) { pthread_mutex_unlock(mutex); }
static inline void rlx_wake(rlx_condition *condition) { pthread_cond_signal(condition); }
static inline void rlx_wait(rlx_condition *condition, rlx_mutex *mutex) { pthread_cond_wait(condition, mutex); }

#define RLX_THREAD(name, argument) static void *name(void *argument)
#define RLX_THREAD_END return NULL
static inline int rlx_start(void *(*work)(void *), void *argument, rlx_thread *thread)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_attr_init(&attributes)) return 0;
    pthread_attr_setstacksize(&attributes, RLX_STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
#ifdef __APPLE__
    /* A thread without a class may be put on a slow core, and all others wait for it. */
    pthread_attr_set_qos_class_np(&attributes, QOS_CLASS_USER_INITIATED, 0);
#endif
    pthread_sigmask(SIG_SETMASK, &all, &before); /* threads of the pool handle no signals */
    const int failed = pthread_create(thread, &attributes, work, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
}
static inline rlx_thread rlx_self(void) { return pthread_self(); }

static inline void rlx_nap(void) { usleep(20); }

#endif

#ifdef __linux__
#include <sched.h>

static inline int rlx_processor(void) { return sched_getcpu(); }
static inline void rlx_keep_off(int processor, const rlx_thread *threads, int64_t count)
{
    cpu_set_t allowed;
    if (processor < 0 || processor >= CPU_SETSIZE || sched_getaffinity(getpid(), sizeof allowed, &allowed)) return;
    CPU_CLR(processor, &allowed);
    for (int64_t i = 0; i < count && CPU_COUNT(&allowed); i++) pthread_setaffinity_np(threads[i], sizeof allowed, &allowed);
}
#else
static inline int rlx_processor(void) { return -1; }
static inline void rlx_keep_off(int processor, const rlx_thread *threads, int64_t count) {}
#endif

#endif
