/* The thread pool of parallel.h. Each thread has a share of the parts of a call, and takes them one at a time; when they
   are gone it takes those of others, so that a thread that is held up by another process makes fewer. The caller never
   waits for a thread that has not begun; one that wakes up late finds the call gone. An idle thread spins for a while, if
   it has a core for that, and then sleeps: within a graph the next call comes soon, and a core that sleeps takes as long
   to wake. Without threads (system_threads.h) callers work alone. A team (call.h) is made of the same threads: each takes
   one part, which goes through all phases. */
#if defined(__linux__)
#define _GNU_SOURCE /* affinities */
#endif
#include "parallel.h"
#include "clock.h"
#include "floats.h"
#include "system_threads.h"

#include <string.h>

#ifdef __linux__
#include <sched.h>
#include <unistd.h>
#define AFFINITIES
#endif

/* How a call treats subnormal numbers: as its caller does, or without those among its operands. */
static rlx_floats floats_of(const rlx_call *call)
{
    return rlx_floats_get() | (call->split->flush ? RLX_FLOATS_OPERANDS : 0);
}

int rlx_alone(const rlx_call *call)
{
    if (!call->split->flush) return call->split->kernel(call);
    const rlx_floats before = rlx_floats_enter(floats_of(call));
    const int status = call->split->kernel(call);
    rlx_floats_set(before);
    return status;
}

/* Bytes that a thread copies at a time. */
#define COPY_UNIT (1 << 17)

/* A kernel: copies the bytes of its part. */
static int copy_part(const rlx_call *call)
{
    const rlx_range own = rlx_part(call, *(const int64_t *)call->p, COPY_UNIT);
    memcpy((char *)call->out[0] + own.first, (const char *)call->in[0] + own.first, (size_t)(own.last - own.first));
    return RLX_OK;
}

void rlx_parallel_copy(void *to, const void *from, int64_t nbytes, int64_t threads, int64_t spin)
{
    const int64_t units = nbytes / COPY_UNIT, all = threads < units ? threads : units;
    struct rlx_split split = {.kernel = copy_part, .parts = units < 4 * all ? units : 4 * all, .threads = all, .spin = spin};
    const rlx_call call = {.fn = rlx_parallel, .in = {(void *)from}, .out = {to}, .p = &nbytes, .parts = 1, .split = &split};
    if (all < 2)
        copy_part(&call);
    else
        rlx_parallel(&call);
}

#ifdef RLX_NO_THREADS

void rlx_parallel_init(void) {}
int64_t rlx_parallel_started(void) { return 0; }
int64_t rlx_parallel_phases(void) { return 0; }
int64_t rlx_parallel_held_up(void) { return 0; }
int rlx_parallel(const rlx_call *call) { return rlx_alone(call); }
int64_t rlx_tasks(const rlx_call *call) { return 1; }
void rlx_phase(const rlx_call *call, int64_t phase, rlx_task task, void *context) { task(context, 0); }

#else

#include <stdatomic.h>

#define MOST_THREADS 1024
#define SHARES 64
#define SPIN_NS 100000
/* A thread is held up if the caller waits for it so many times as long as a part takes, and so many nanoseconds. */
#define HELD_UP_PARTS 3
#define HELD_UP_NS 200000
/* Threads are left out where calls lose more than this part of their time to threads that are held up. Calls count half
   as much after each WINDOW_NS of them, and BEFORE_NS without a loss are assumed before the first one: a single pause does
   not matter, and on many processors there is always one now and then. */
#define LOST_PART 4
#define WINDOW_NS 40000000
#define BEFORE_NS 10000000
/* Nanoseconds after which one more thread is tried, at first and at most. */
#define TRY_NS 10000000
#define LONGEST_TRY_NS 80000000

/* A counter with a line of the cache of its own. */
typedef struct {
    _Atomic int64_t count;
    char rest[56];
} rlx_counter;

/* A team. */
struct rlx_team {
    rlx_counter tasks[RLX_TEAM]; /* the phase of which the task is the next to be made */
    _Atomic int64_t made;        /* tasks of all phases */
    _Atomic int64_t lost;        /* the longest that a thread waited for a task that another one had begun, in nanoseconds */
};

/* A call in progress; it is on the caller's stack. */
typedef struct {
    const rlx_call *call;
    struct rlx_team *team;
    int64_t shares;            /* parts are in so many shares */
    rlx_counter given[SHARES]; /* parts of each share that are handed out */
    _Atomic int status;
    rlx_floats floats; /* how all threads treat subnormal numbers */
} rlx_job;

/* A thread joins a job in three steps: it says that it is inside, reads the job, and takes parts if there is one. The
   caller withdraws the job first and waits for those inside afterwards, so that each thread either finds no job or is
   waited for. No lock is taken unless a thread sleeps, and each thread writes a line of its own: a line that all of them
   write goes from one core to the next, which takes longer than a small part.

   Both sides write first and look at what the other one wrote afterwards. They write by exchanges: x86 has one instruction
   for these and for stores that keep such an order, while qemu 7.2 lets loads pass the stores of ARM that do. */
#define WRITE_FIRST(place, value) ((void)atomic_exchange(&(place), value))

static struct {
    _Atomic(rlx_job *) job; /* the job that threads may join; NULL between calls */
    _Atomic int64_t seats;  /* threads that may join it, with the caller */
    char rest[64];          /* those who wait read the lines above; those who join write the next ones */
    rlx_counter inside[MOST_THREADS]; /* by seat: whether the thread looks at the job or works on it */
    _Atomic int busy;       /* a caller has the pool */
    _Atomic int64_t started;
    _Atomic int64_t phases; /* that teams have gone through, since the process began */
    _Atomic int64_t held_up; /* calls that waited for a thread that was held up, since then */
    rlx_mutex mutex;        /* of those who sleep */
    rlx_condition done;     /* the caller sleeps until nobody is inside */
    _Atomic int waiting;    /* it does */
    rlx_condition work[MOST_THREADS]; /* each thread of the pool sleeps by itself until there is a job */
    _Atomic char asleep[MOST_THREADS];
#ifdef AFFINITIES
    rlx_thread threads[MOST_THREADS];
    int avoided; /* the processor that the threads avoid, -1 for none */
#endif
    /* Facts about other processes, for the owner of the pool. */
    int64_t spent, lost;  /* nanoseconds of the latest calls, and what they lost to threads that were held up */
    int64_t limit;        /* threads that a call is given at most; 0 for no limit */
    int64_t since, pause; /* when the limit was changed, and how long until it is raised */
} pool;

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) && defined(__GNUC__)
    __asm__ volatile("yield");
#endif
}

int64_t rlx_tasks(const rlx_call *call) { return call->team ? call->split->tasks : 1; }

void rlx_phase(const rlx_call *call, int64_t phase, rlx_task task, void *context)
{
    struct rlx_team *team = call->team;
    if (!team) {
        task(context, 0);
        return;
    }
    const int64_t tasks = call->split->tasks, all = (phase + 1) * tasks;
    if (call->part == 0) atomic_fetch_add_explicit(&pool.phases, 1, memory_order_relaxed);
    /* Each thread begins with the same task in every phase, since its data is in the cache then. */
    for (int64_t i = 0; i < tasks && atomic_load_explicit(&team->made, memory_order_acquire) < all; i++) {
        const int64_t own = (call->part + i) % tasks;
        int64_t next = phase;
        if (atomic_load_explicit(&team->tasks[own].count, memory_order_relaxed) != phase) continue;
        if (!atomic_compare_exchange_strong(&team->tasks[own].count, &next, phase + 1)) continue;
        task(context, own);
        atomic_fetch_add(&team->made, 1);
    }
    const int64_t began = rlx_clock_ns(), until = call->split->spin ? began + SPIN_NS : 0;
    int naps = 0;
    for (int64_t turns = 1; atomic_load_explicit(&team->made, memory_order_acquire) < all; turns++)
        if (!until || (turns % 32 == 0 && rlx_clock_ns() > until)) rlx_nap(), naps = 1;
        else pause_briefly();
    if (!naps) return;
    const int64_t waited = rlx_clock_ns() - began;
    int64_t lost = team->lost;
    while (waited > HELD_UP_NS && waited > lost && !atomic_compare_exchange_weak(&team->lost, &lost, waited));
}

/* Restricts a call to the rows of its part. */
static void take_rows(rlx_call *call, int64_t *params, const struct rlx_split *split)
{
    const rlx_range own = rlx_part(call, split->rows, 1);
    memcpy(params, call->p, (size_t)split->words * sizeof(*params));
    params[split->index] = own.last - own.first;
    call->p = params;
    call->parts = 1;
    for (int k = 0; k < RLX_INPUTS; k++)
        if (split->in[k]) call->in[k] = (char *)call->in[k] + own.first * split->in[k];
    for (int k = 0; k < RLX_OUTPUTS; k++)
        if (split->out[k]) call->out[k] = (char *)call->out[k] + own.first * split->out[k];
}

/* Makes parts until none is left, and returns how many. A thread begins with its own share, which is the same for calls
   of as many parts: what it wrote in the call before is in its cache then. Afterwards it helps with the shares of others.
   */
static int64_t make_parts(rlx_job *job, int64_t seat)
{
    const struct rlx_split *split = job->call->split;
    const int64_t shares = job->shares;
    rlx_call own = *job->call;
    int64_t params[RLX_ROW_WORDS];
    const rlx_floats before = rlx_floats_enter(job->floats);
    int64_t made = 0;
    own.parts = (int32_t)split->parts;
    own.team = job->team;
    if (seat)
        for (int k = 0; k < RLX_OUTPUTS; k++)
            if (split->scratch[k]) own.out[k] = split->scratch[k] + (seat - 1) * split->apart;
    for (int64_t i = 0; i < shares; i++) {
        const int64_t share = (seat + i) % shares;
        const int64_t first = split->parts * share / shares, count = split->parts * (share + 1) / shares - first;
        int64_t part;
        while (atomic_load_explicit(&job->given[share].count, memory_order_relaxed) < count &&
               (part = atomic_fetch_add(&job->given[share].count, 1)) < count) {
            own.part = (int32_t)(first + part);
            rlx_call some = own;
            if (split->rows) take_rows(&some, params, split);
            const int status = split->kernel(&some);
            made++;
            if (status == RLX_OK) continue;
            atomic_store(&job->status, status);
            for (int64_t k = 0; k < shares; k++) atomic_store(&job->given[k].count, split->parts);
        }
    }
    rlx_floats_set(before);
    return made;
}

/* Whether there is a job that a thread with this seat may join. */
static inline int called(int64_t seat) { return pool.job && seat < pool.seats; }

/* Returns when there is one: a thread that may spin sleeps after a while, the others at once. */
static void await_job(int64_t seat, int64_t spin)
{
    const int64_t until = spin ? rlx_clock_ns() + SPIN_NS : 0;
    while (spin && rlx_clock_ns() < until)
        for (int i = 0; i < 32; i++) {
            if (called(seat)) return;
            pause_briefly();
        }
    rlx_lock(&pool.mutex);
    WRITE_FIRST(pool.asleep[seat], 1);
    while (!called(seat)) rlx_wait(&pool.work[seat], &pool.mutex);
    pool.asleep[seat] = 0;
    rlx_unlock(&pool.mutex);
}

/* A thread of the pool; `given` is its seat, which counts from 1. */
RLX_THREAD(work, given)
{
    const int64_t seat = (int64_t)(intptr_t)given;
    int64_t spin = 0;
    for (;;) {
        await_job(seat, spin);
        WRITE_FIRST(pool.inside[seat].count, 1);
        rlx_job *job = pool.job;
        if (job && seat < job->call->split->threads) {
            spin = job->call->split->spin;
            make_parts(job, seat);
            /* The job has no parts left, so no other thread needs to join it. */
            if (pool.job == job) atomic_compare_exchange_strong(&pool.job, &job, NULL);
        }
        WRITE_FIRST(pool.inside[seat].count, 0);
        if (pool.waiting) {
            rlx_lock(&pool.mutex);
            rlx_wake(&pool.done);
            rlx_unlock(&pool.mutex);
        }
    }
    RLX_THREAD_END;
}

/* Wakes the threads of a job that sleep. */
static void wake(int64_t wanted)
{
    int64_t first = 1;
    while (first < wanted && !pool.asleep[first]) first++;
    if (first == wanted) return;
    rlx_lock(&pool.mutex);
    for (int64_t i = first; i < wanted; i++)
        if (pool.asleep[i]) rlx_wake(&pool.work[i]);
    rlx_unlock(&pool.mutex);
}

/* Returns when nobody is inside. There is no job, so that a thread that was seen outside does not matter any more. */
static void await_threads(int64_t spin)
{
    const int64_t all = pool.started;
    int64_t seat = 1;
    while (seat <= all && !pool.inside[seat].count) seat++;
    if (seat > all) return;
    const int64_t until = spin ? rlx_clock_ns() + SPIN_NS : 0;
    while (until && rlx_clock_ns() < until)
        for (int i = 0; i < 32; i++) {
            while (seat <= all && !pool.inside[seat].count) seat++;
            if (seat > all) return;
            pause_briefly();
        }
    rlx_lock(&pool.mutex);
    WRITE_FIRST(pool.waiting, 1);
    for (; seat <= all; seat++)
        while (pool.inside[seat].count) rlx_wait(&pool.done, &pool.mutex);
    pool.waiting = 0;
    rlx_unlock(&pool.mutex);
}

static int start_thread(void)
{
    rlx_thread thread;
    if (!rlx_start(work, (void *)(intptr_t)(pool.started + 1), &thread)) return 0;
#ifdef AFFINITIES
    pool.threads[pool.started] = thread, pool.avoided = -1;
#endif
    return 1;
}

#ifdef AFFINITIES
/* Linux tends to wake a thread on the processor of its waker, where it would wait for the caller to finish. The threads
   may run where the process may. The affinity of the calling thread is not used, since it may be bound to one processor.
   */
static void keep_off(int processor)
{
    cpu_set_t allowed;
    pool.avoided = processor;
    if (processor < 0 || processor >= CPU_SETSIZE || sched_getaffinity(getpid(), sizeof allowed, &allowed)) return;
    CPU_CLR(processor, &allowed);
    for (int64_t i = 0; i < pool.started && CPU_COUNT(&allowed); i++)
        pthread_setaffinity_np(pool.threads[i], sizeof allowed, &allowed);
}
#endif

/* Threads that a call is given. On processors that are busy otherwise, a thread may stop in the middle of its part until
   the system runs it again, some milliseconds later, and all others wait. Where much time is lost in that way a quarter of
   the threads is left out, one at least. After a while one more is tried; the while is longer each time that this fails. */
static int64_t allowed(int64_t wanted)
{
    if (!pool.limit) return wanted;
    const int64_t now = rlx_clock_ns();
    if (now - pool.since > pool.pause) {
        pool.limit++, pool.since = now;
        if (pool.limit > MOST_THREADS || pool.limit > pool.started + 1) pool.limit = 0, pool.pause = 0;
    }
    return pool.limit && pool.limit < wanted ? pool.limit : wanted;
}

/* Sets the limit after a call by so many threads that lost much time. */
static void leave_out(int64_t threads, int64_t now)
{
    const int64_t soon = now - pool.since < 2 * pool.pause;
    pool.limit = threads - (threads / 4 ? threads / 4 : 1);
    pool.pause = soon && pool.pause ? 2 * pool.pause : TRY_NS;
    if (pool.pause > LONGEST_TRY_NS) pool.pause = LONGEST_TRY_NS;
    pool.since = now;
}

/* Counts a call by so many threads that began and ended then, and what it lost. */
static void count_call(int64_t threads, int64_t began, int64_t ended, int64_t lost)
{
    pool.spent += ended - began, pool.lost += lost;
    if (lost) pool.held_up++;
    if (lost && pool.lost * LOST_PART > pool.spent + BEFORE_NS) leave_out(threads, ended);
    if (pool.spent > WINDOW_NS) pool.spent /= 2, pool.lost /= 2;
}

int rlx_parallel(const rlx_call *call)
{
    const struct rlx_split *split = call->split;
    if (atomic_exchange(&pool.busy, 1)) return rlx_alone(call);
    const int64_t wanted = allowed(split->threads < MOST_THREADS ? split->threads : MOST_THREADS);
    if (wanted == 1) {
        pool.busy = 0;
        return rlx_alone(call);
    }
    while (pool.started < wanted - 1 && start_thread()) pool.started++;
#ifdef AFFINITIES
    const int processor = sched_getcpu();
    if (split->spin && processor != pool.avoided) keep_off(processor);
#endif
    struct rlx_team team;
    /* Relaxed stores do not wait for the lines that other cores hold; the store of the job comes after them. */
    for (int64_t i = 0; i < split->tasks; i++) atomic_store_explicit(&team.tasks[i].count, 0, memory_order_relaxed);
    team.made = 0;
    team.lost = 0; /* stands for all calls, also those without a team */
    rlx_job job;
    job.call = call, job.team = split->tasks ? &team : NULL;
    job.shares = wanted < SHARES ? wanted : SHARES;
    for (int64_t i = 0; i < job.shares; i++) atomic_store_explicit(&job.given[i].count, 0, memory_order_relaxed);
    job.status = RLX_OK;
    job.floats = floats_of(call);
    atomic_store_explicit(&pool.seats, wanted, memory_order_relaxed);
    WRITE_FIRST(pool.job, &job);
    wake(wanted);
    const int64_t began = rlx_clock_ns(), parts = make_parts(&job, 0);
    WRITE_FIRST(pool.job, NULL);
    const int64_t waits = rlx_clock_ns(), most = HELD_UP_NS + HELD_UP_PARTS * ((waits - began) / (parts ? parts : 1));
    await_threads(split->spin);
    const int64_t ended = rlx_clock_ns();
    if (ended - waits > most && ended - waits > team.lost) team.lost = ended - waits;
    count_call(wanted, began, ended, team.lost);
    pool.busy = 0;
    return job.status;
}

int64_t rlx_parallel_started(void) { return pool.started; }
int64_t rlx_parallel_phases(void) { return pool.phases; }
int64_t rlx_parallel_held_up(void) { return pool.held_up; }

/* Only the forking thread exists in the child of a process, so its pool starts empty. */
static void begin_anew(void)
{
    rlx_mutex_init(&pool.mutex);
    rlx_condition_init(&pool.done);
    for (int64_t i = 0; i < MOST_THREADS; i++) rlx_condition_init(&pool.work[i]), pool.asleep[i] = 0;
    pool.job = NULL;
    pool.busy = pool.waiting = 0;
    pool.started = 0;
    for (int64_t i = 0; i < MOST_THREADS; i++) pool.inside[i].count = 0;
    pool.spent = pool.lost = pool.limit = pool.since = pool.pause = 0;
#ifdef AFFINITIES
    pool.avoided = -1;
#endif
}

void rlx_parallel_init(void)
{
    begin_anew();
#ifndef _WIN32
    pthread_atfork(NULL, NULL, begin_anew);
#endif
}
#endif
