/* Stops a thread in the middle of its work, whether a processor runs it or not: it goes on elsewhere, and makes not one more
   store of that work. The work must hold nothing that it would have to give back, neither locks nor memory.

   A signal is sent to the thread, and its handler leaves the work by a jump. A thread that the system does not run takes
   the signal before its next instruction. One that runs takes it when its processor is interrupted: the barrier interrupts all
   processors that run threads of this process, and returns when they were. Linux alone has such a barrier (membarrier). The
   signal is SIGURG, which systems ignore and debuggers pass on; in a process that handles it, no thread can be stopped. */
#ifndef RLX_STOPPING_H
#define RLX_STOPPING_H

#define RLX_STOPPED (-1)

#if defined(__linux__) && defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* which delays signals */
#include <cpuid.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <ucontext.h>
#include <unistd.h>

/* A thread that may be stopped. */
typedef struct {
    sigjmp_buf elsewhere;   /* where it goes on */
    _Atomic int64_t *state; /* RLX_STOPPED from when somebody decides to stop it, until it notices */
    sigset_t before, mask;  /* the signals that it blocked before, and those that it blocks at its work */
} rlx_stoppable;

/* A handler may read it: with this model of glibc's, and with musl, it takes no memory at the first use. */
#ifdef __GLIBC__
static __thread rlx_stoppable *rlx_own_stop __attribute__((tls_model("initial-exec")));
#else
static __thread rlx_stoppable *rlx_own_stop;
#endif

static void rlx_take_stop(int number, siginfo_t *about, void *context)
{
    rlx_stoppable *own = rlx_own_stop;
    sigset_t *interrupted = &((ucontext_t *)context)->uc_sigmask;
    (void)about;
    if (!own || *own->state != RLX_STOPPED) return;
    if (memcmp(interrupted, &own->mask, NSIG / 8)) { /* another handler was interrupted: once more when it ends */
        sigaddset(interrupted, number);
        pthread_kill(pthread_self(), number);
        return;
    }
    pthread_sigmask(SIG_SETMASK, &own->mask, NULL);
    siglongjmp(own->elsewhere, 1);
}

static void rlx_allow_stop(rlx_stoppable *own, _Atomic int64_t *state)
{
    sigset_t one;
    sigemptyset(&one), sigaddset(&one, SIGURG);
    pthread_sigmask(SIG_UNBLOCK, &one, &own->before);
    own->mask = own->before, sigdelset(&own->mask, SIGURG);
    own->state = state;
    rlx_own_stop = own;
}

/* The calling thread may be stopped from here on, and goes on here. */
#define RLX_ALLOW_STOP(state)                                                                     \
    rlx_stoppable own_stop;                                                                       \
    rlx_allow_stop(&own_stop, &(state));                                                          \
    if (sigsetjmp(own_stop.elsewhere, 0)) (state) = 0

static void rlx_forbid_stop(void)
{
    if (sigismember(&rlx_own_stop->before, SIGURG)) pthread_sigmask(SIG_SETMASK, &rlx_own_stop->before, NULL);
    rlx_own_stop = NULL;
}

/* Whether a program translates this one for another processor (qemu, FEX, Rosetta), or is its kernel (gVisor, which says 4.4):
   these may deliver a signal after further stores. Linux has the barrier since 4.14. */
static int rlx_is_translated(void)
{
    unsigned int words[2][4];
    struct utsname name;
    char *rest = NULL;
    __cpuid(0, words[0][0], words[0][1], words[0][3], words[0][2]);
    __cpuid(0x40000000, words[1][0], words[1][1], words[1][2], words[1][3]);
    if (!memcmp(&words[0][1], "VirtualApple", 12) || !memcmp(&words[1][1], "TCGTCGTCGTCG", 12)) return 1;
    if (!memcmp(&words[1][1], "FEXIFEXIEMU", 11) || uname(&name)) return 1;
    const long major = strtol(name.release, &rest, 10), minor = *rest == '.' ? strtol(rest + 1, NULL, 10) : 0;
    return major < 4 || (major == 4 && minor < 14);
}

/* Whether threads can be stopped. The first call of a process takes some milliseconds. */
static int rlx_can_stop(void)
{
    static _Atomic int translated; /* 1 if it is not, 2 if it is, and 0 before that is known */
    if (!translated) translated = 1 + rlx_is_translated();
    if (translated == 2) return 0;
    const struct sigaction own = {.sa_sigaction = rlx_take_stop, .sa_flags = SA_RESTART | SA_SIGINFO};
    struct sigaction now;
    if (sigaction(SIGURG, NULL, &now) || syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)) return 0;
    return now.sa_sigaction == rlx_take_stop || (now.sa_handler == SIG_DFL && !sigaction(SIGURG, &own, NULL));
}

/* Stops a thread whose word is RLX_STOPPED. It has left its work when this returns. */
static void rlx_stop(pthread_t thread, _Atomic int64_t *state)
{
    pthread_kill(thread, SIGURG);
    if (!syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)) return;
    while (*state == RLX_STOPPED) usleep(20); /* it takes the signal when it runs again */
}
#else
#define RLX_ALLOW_STOP(state) ((void)0)
static void rlx_forbid_stop(void) {}
static int rlx_can_stop(void) { return 0; }
#define rlx_stop(thread, state) ((void)0)
#endif
#endif
