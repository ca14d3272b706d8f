/* The thread pool of parallel.h. A run of calls is made step by step: a step is a call that threads share, and the calls
   behind it that one thread makes. Each thread has a share of the parts of a step, and takes them one at a time; when they are
   gone it takes those of others, so that a thread that is held up by another process makes fewer. When all parts are made the
   leader, at first the caller, makes what one thread makes, and begins the next step: small calls find in its cache what it
   wrote in the one before. If it is held up, another thread leads from then on. A thread that has nothing left to do stops one
   that is late in the middle of its part, and makes that part itself (stopping.h). An idle thread spins for a while, and then
   sleeps: within a graph the next step comes soon, and a core that sleeps takes as long to wake. A team (call.h) is made of the
   same threads: each takes one part, which goes through all phases. */
#include "system_threads.h" /* first: it asks for affinities */
#include "clock.h"
#include "floats.h"
#include "parallel.h"
#include "stopping.h"

#include <stdatomic.h>
#include <string.h>

/* Makes a call on this thread. */
static int make_alone(const rlx_call *call)
{
    if (!call->split || !call->split->flush) return call->fn(call);
    const rlx_floats before = rlx_floats_enter(rlx_floats_get() | RLX_FLOATS_OPERANDS);
    const int status = call->fn(call);
    rlx_floats_set(before);
    return status;
}

#define MOST_THREADS 1024
#define SPIN_NS 100000
/* A thread is late if it makes something for twice as long as that usually takes, and for so many nanoseconds more. */
#define LATE_NS 10000
/* A thread that finds so many nanoseconds gone at once has lost its processor to another program. From then on threads are in a
   crowd for so many, and late sooner there: after 5/4 of the usual time, and half as many nanoseconds more. */
#define AWAY_NS 500000
#define CROWD_NS 20000000

/* What a thread does: nothing, or it looks for work, or it makes a part, or a task of a team: the number of the step or
   phase, and in so many bits that of the part or task. There is also RLX_STOPPED. Phases count on from PHASES. */
enum { OUTSIDE, INSIDE, ITEM_BITS = 20 };
#define MOST_PARTS ((1 << ITEM_BITS) - 1)
#define PHASES ((int64_t)1 << 42)

/* A thread, in a line of the cache of its own. The records of calls name it where it makes the call with a team. */
struct rlx_team {
    _Atomic int64_t state, since; /* what it does, and from when on it makes that */
    _Atomic int64_t made;         /* parts of the step that it made, and that are not counted yet */
    int64_t longest;              /* nanoseconds of the longest one */
    char rest[32];
};

/* A counter with a line of its own. */
typedef struct {
    _Atomic int64_t count;
    char rest[56];
} rlx_counter;

/* A thread makes parts in three steps: it says that it is inside, reads the call, and takes parts if there is one. Who ends the
   run withdraws the call, and the caller waits for those inside then, so that each thread either finds no call or is waited
   for. No lock is taken unless a thread sleeps, and each thread writes a line of its own: a line that all of them write goes
   from one core to the next, which takes longer than a small part.

   Both sides write first and look at what the other one wrote afterwards. They write by exchanges: x86 has one instruction
   for these and for stores that keep such an order, while qemu 7.2 lets loads pass the stores of ARM that do. */
#define WRITE_FIRST(place, value) ((void)atomic_exchange(&(place), value))

static struct {
    /* Those who wait read the first line. */
    _Alignas(64) _Atomic int64_t step; /* the number of the step, since the process began */
    _Atomic int64_t seats;             /* threads that may make its parts, with the caller; 0 between runs */
    _Atomic int64_t leader;            /* the seat of the thread that ended the step before, of the caller at first */
    /* These rarely change within a run. */
    _Alignas(64) _Atomic(const rlx_call *) calls; /* of the run; NULL between runs */
    int64_t first, end; /* the step that the first one would be, and the one behind all, then behind those made */
    _Atomic int64_t crowd; /* the time until which threads are in a crowd */
    rlx_floats floats;  /* how the run treats subnormal numbers */
    _Atomic int status; /* of the run */
    /* These change with each step. */
    _Alignas(64) _Atomic int64_t usual; /* nanoseconds of its longest part the time before; 0 if it was never made */
    _Atomic int64_t longest;            /* nanoseconds of the longest one until now */
    _Atomic int64_t patience;           /* how many more pass until a thread is late */
    _Atomic int crowded;                /* whether it began in a crowd */
    _Alignas(64) _Atomic int64_t left;  /* parts that are not made and counted */
    _Alignas(64) _Atomic int64_t ended; /* the latest step whose end a thread has taken on */
    _Alignas(64) rlx_counter given[MOST_THREADS]; /* by seat: the step, and in ITEM_BITS how many of its parts are taken */
    struct rlx_team inside[MOST_THREADS]; /* by seat */
    rlx_counter tasks[RLX_TEAM]; /* the phase of which the task of a team is the next to be made */
    _Atomic int64_t tasks_made;  /* of all phases */
    int64_t phase;               /* the number of the first phase of the step */
    _Atomic int busy;        /* a caller has the pool */
    _Atomic int64_t started;
    _Atomic int64_t phases;  /* that teams have gone through, since the process began */
    _Atomic int64_t held_up; /* threads that were late, since then */
    rlx_mutex mutex;         /* of those who sleep */
    rlx_condition work[MOST_THREADS]; /* each thread of the pool sleeps by itself until there is a step */
    _Atomic char asleep[MOST_THREADS];
    rlx_thread threads[MOST_THREADS]; /* by seat */
    _Atomic int avoided; /* the processor that the threads avoid, -1 for none */
} pool;

/* The call of a step, while its run goes on. */
static inline const rlx_call *call_of(int64_t step) { return pool.calls + (step - pool.first); }

/* Whether a part of a call can be made again after a thread has made some of it: no part may change what it reads. */
static int again(const rlx_call *call)
{
    int result = !call->split->once;
    for (int k = 0; k < RLX_OUTPUTS; k++)
        for (int i = 0; i < RLX_INPUTS; i++) result &= !call->out[k] || call->out[k] != call->in[i];
    return result;
}

/* Whether threads share a call with a split. */
static inline int shared(const struct rlx_split *split)
{
    return split->threads > 1 && split->threads <= MOST_THREADS && split->parts <= MOST_PARTS;
}

/* Goes from one state to another. If the thread was stopped instead, it leaves its work here. */
static void change(struct rlx_team *own, int64_t from, int64_t to)
{
    if (!atomic_compare_exchange_strong(&own->state, &from, to))
        for (;;) rlx_nap();
}

/* Makes a task that the thread has taken. It can be stopped at it, but not before. */
static void make_task(struct rlx_team *own, int64_t phase, int64_t number, rlx_task task, void *context)
{
    const int64_t state = (pool.phase + phase) << ITEM_BITS | number;
    atomic_store_explicit(&own->since, rlx_clock_ns(), memory_order_relaxed);
    atomic_store_explicit(&own->state, state, memory_order_release);
    task(context, number);
    change(own, state, INSIDE);
    atomic_fetch_add(&pool.tasks_made, 1);
}

/* Returns the time. If that is long after `before`, when this thread ran, another program had its processor: a crowd begins. */
static int64_t look_at_clock(int64_t before)
{
    const int64_t now = rlx_clock_ns();
    if (now - before > AWAY_NS) atomic_store_explicit(&pool.crowd, now + CROWD_NS, memory_order_relaxed);
    return now;
}

/* Counts parts that another thread made as this one's. */
static void take_count(struct rlx_team *own, struct rlx_team *other)
{
    if (own != other && other->made) own->made += atomic_exchange(&other->made, 0);
}

/* Takes a part of a step, or a task of a phase, from a thread that is late, and returns its number; -1 if no thread is, or if
   that may not be. Others take `usual` nanoseconds. After each one the others get longer, so that one of them ends. */
static int64_t take_late(struct rlx_team *own, const rlx_call *call, int64_t number, int64_t usual)
{
    const int64_t latest = rlx_clock_ns() - pool.patience - usual * (pool.crowded ? 5 : 8) / 4;
    for (int64_t seat = 0; seat <= pool.started; seat++) {
        take_count(own, &pool.inside[seat]);
        int64_t state = pool.inside[seat].state;
        if (state >> ITEM_BITS != number || pool.inside[seat].since > latest) continue;
        pool.held_up++;
        if (!again(call) || !rlx_can_stop()) return -1;
        if (!atomic_compare_exchange_strong(&pool.inside[seat].state, &state, RLX_STOPPED)) continue;
        pool.patience *= 2;
        rlx_stop(pool.threads[seat], &pool.inside[seat].state);
        take_count(own, &pool.inside[seat]);
        return state - (number << ITEM_BITS);
    }
    return -1;
}

int64_t rlx_tasks(const rlx_call *call) { return call->team ? call->split->tasks : 1; }

void rlx_phase(const rlx_call *call, int64_t phase, rlx_task task, void *context)
{
    if (!call->team) {
        task(context, 0);
        return;
    }
    struct rlx_team *const member = call->team;
    const int64_t tasks = call->split->tasks, all = (phase + 1) * tasks, part = pool.step << ITEM_BITS | call->part;
    const int64_t began = rlx_clock_ns();
    change(member, part, INSIDE);
    if (call->part == 0) atomic_fetch_add_explicit(&pool.phases, 1, memory_order_relaxed);
    /* Each thread begins with the same task in every phase, since its data is in the cache then. */
    for (int64_t i = 0; i < tasks && atomic_load_explicit(&pool.tasks_made, memory_order_acquire) < all; i++) {
        const int64_t own = (call->part + i) % tasks;
        int64_t next = phase;
        if (atomic_load_explicit(&pool.tasks[own].count, memory_order_relaxed) != phase) continue;
        if (!atomic_compare_exchange_strong(&pool.tasks[own].count, &next, phase + 1)) continue;
        make_task(member, phase, own, task, context);
    }
    member->state = part;
    const int64_t waits = rlx_clock_ns();
    for (int64_t turns = 1; atomic_load_explicit(&pool.tasks_made, memory_order_acquire) < all; turns++) {
        rlx_pause();
        if (turns % 32) continue;
        change(member, part, INSIDE);
        const int64_t late = take_late(member, call, pool.phase + phase, waits - began);
        if (late >= 0) {
            member->made++; /* the part of the other thread: all tasks are made before this part is */
            make_task(member, phase, late, task, context);
        }
        member->state = part;
        if (rlx_clock_ns() - waits > SPIN_NS) rlx_nap();
    }
}

/* Wakes the threads of a step that sleep. */
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

RLX_THREAD(work, given);

static int start_thread(void)
{
    const int64_t seat = pool.started + 1;
    if (!rlx_start(work, (void *)(intptr_t)seat, &pool.threads[seat])) return 0;
    pool.avoided = -1;
    return 1;
}

/* Begins a step. */
static void begin_step(int64_t step)
{
    const struct rlx_split *split = call_of(step)->split;
    while (pool.started < split->threads - 1 && start_thread()) pool.started++;
    /* Relaxed stores do not wait for the lines that other cores hold; the store of the step comes after them. */
    for (int64_t i = 0; i < split->tasks; i++) atomic_store_explicit(&pool.tasks[i].count, 0, memory_order_relaxed);
    if (split->tasks) pool.phase += atomic_exchange(&pool.tasks_made, 0); /* at least as many as phases */
    atomic_store_explicit(&pool.left, split->parts, memory_order_relaxed);
    atomic_store_explicit(&pool.longest, 0, memory_order_relaxed);
    atomic_store_explicit(&pool.usual, split->usual, memory_order_relaxed);
    const int crowded = pool.crowd > 0 && rlx_clock_ns() < pool.crowd;
    atomic_store_explicit(&pool.crowded, crowded, memory_order_relaxed);
    atomic_store_explicit(&pool.patience, (split->usual ? 1 : 100) * LATE_NS / (1 + crowded), memory_order_relaxed);
    atomic_store_explicit(&pool.seats, split->threads, memory_order_relaxed);
    WRITE_FIRST(pool.step, step);
    wake(split->threads);
}

/* Goes on when all parts of a step are made: makes what one thread makes, and begins the next step or ends the run. */
static void end_step(int64_t step)
{
    struct rlx_split *split = call_of(step)->split;
    const int64_t before = split->usual, now = before && 2 * before < pool.longest ? 2 * before : pool.longest;
    if (now < before - before / 8 || now > before + before / 8) split->usual = now; /* else other cores keep the line */
    rlx_floats_set(pool.floats);
    for (step += !pool.status; !pool.status && step < pool.end && call_of(step)->split; step += !pool.status) {
        if (shared(call_of(step)->split)) {
            begin_step(step);
            return;
        }
        pool.status = make_alone(call_of(step));
    }
    pool.end = step;
    pool.seats = 0;
    pool.ended = step + 1; /* which nobody makes */
    WRITE_FIRST(pool.calls, NULL);
    WRITE_FIRST(pool.step, step + 1);
}

/* Counts the parts that a thread made. A count that all threads raise after each part would go from core to core. */
static void count_parts(struct rlx_team *own)
{
    const int64_t made = own->made ? atomic_exchange(&own->made, 0) : 0;
    if (!made) return;
    if (own->longest > pool.longest) atomic_store_explicit(&pool.longest, own->longest, memory_order_relaxed);
    atomic_fetch_sub(&pool.left, made);
}

/* Ends the step if its parts are made and nobody else does. Returns whether it did. */
static int lead(int64_t seat)
{
    int64_t step = pool.step, ended = pool.ended;
    if (pool.left || ended >= step) return 0;
    WRITE_FIRST(pool.inside[seat].state, INSIDE);
    const int leads = atomic_compare_exchange_strong(&pool.ended, &ended, step);
    if (leads && pool.leader != seat) pool.leader = seat;
    if (leads) end_step(step);
    WRITE_FIRST(pool.inside[seat].state, OUTSIDE);
    return leads;
}

/* Makes a part. Returns 0 if the thread was stopped meanwhile: its result does not count. */
static int make_part(const rlx_call *own, int64_t seat, int64_t step, int64_t part)
{
    const struct rlx_split *split = own->split;
    struct rlx_team *const thread = &pool.inside[seat];
    int64_t params[RLX_ROW_WORDS], state = step << ITEM_BITS | part;
    rlx_call some = *own;
    some.part = (int32_t)part;
    if (split->rows) rlx_take_rows(&some, params, split);
    const int64_t began = rlx_clock_ns();
    atomic_store_explicit(&thread->since, began, memory_order_relaxed);
    atomic_store_explicit(&thread->state, state, memory_order_release);
    const int status = some.fn(&some);
    if (!atomic_compare_exchange_strong(&thread->state, &state, INSIDE)) return 0;
    const int64_t took = rlx_clock_ns() - began;
    if (took > thread->longest) thread->longest = took;
    if (status != RLX_OK) pool.status = status;
    thread->made++;
    return 1;
}

/* Takes the next part of those that are a seat's share, and returns its number; -1 if there is none. */
static int64_t take_part(int64_t seat, int64_t step, const struct rlx_split *split)
{
    const int64_t first = split->parts * seat / split->threads, count = split->parts * (seat + 1) / split->threads - first;
    int64_t given = atomic_load_explicit(&pool.given[seat].count, memory_order_relaxed), next;
    do {
        next = given >> ITEM_BITS == step ? given & MOST_PARTS : 0;
        if (given >> ITEM_BITS > step || next >= count) return -1;
    } while (!atomic_compare_exchange_weak(&pool.given[seat].count, &given, step << ITEM_BITS | (next + 1)));
    return first + next;
}

/* Which parts of a step a thread makes: those of its share, which is the same for calls of as many parts, so that its cache has
   what it wrote in the call before; then also those of other shares, and of threads that are late. */
enum { OWN_SHARE, OTHER_SHARES, LATE_PARTS };

/* Makes parts of a step until none is left, and returns how many. Where each thread has one part, others have usually taken
   theirs, and a thread makes its own share alone at first. */
static int64_t make_parts(int64_t seat, int64_t step, int looks)
{
    const rlx_call *calls = pool.calls;
    if (!calls || step < pool.first) return 0;
    const rlx_call *call = calls + (step - pool.first);
    const struct rlx_split *split = call->split;
    if (seat >= split->threads) return 0;
    int64_t made = 0, part;
    struct rlx_team *const thread = &pool.inside[seat];
    rlx_call own = *call;
    own.parts = (int32_t)split->parts;
    own.team = split->tasks ? thread : NULL;
    thread->longest = 0;
    rlx_floats_set(pool.floats | (split->flush ? RLX_FLOATS_OPERANDS : 0));
    if (seat)
        for (int k = 0; k < RLX_OUTPUTS; k++)
            if (split->scratch[k]) own.out[k] = (char *)(intptr_t)split->scratch[k] + (seat - 1) * split->apart;
    const int64_t shares = looks || split->parts > split->threads ? split->threads : 1;
    for (int64_t i = 0; i < shares; i++)
        for (; (part = take_part((seat + i) % split->threads, step, split)) >= 0; made++)
            if (!make_part(&own, seat, step, part)) return made;
    if (looks == LATE_PARTS && !made && (part = take_late(thread, call, step, (pool.usual + pool.longest) / 2)) >= 0) {
        if (!make_part(&own, seat, step, part)) return 0; /* who stopped this thread takes its count */
        made = 1;
    }
    count_parts(thread);
    return made;
}

/* Whether there is another step than one that a thread with this seat has seen; for the caller also whether the run is over. */
static inline int called(int64_t seat, int64_t seen)
{
    return pool.step != seen ? !seat || seat < pool.seats : !seat && !pool.calls;
}

/* Waits for the next step, and returns OWN_SHARE when it is there. Before that it returns which other parts the thread may make:
   it has made none since then, and has looked for some. It sleeps after a while; the caller of a run only naps. */
static int await_step(int64_t seat, int64_t seen, int64_t since, int looked)
{
    const int64_t began = rlx_clock_ns();
    int64_t now = began;
    int ended = 0;
    for (int64_t turns = 1;; turns++) {
        if (called(seat, seen)) return OWN_SHARE;
        if (pool.leader == seat && lead(seat)) return OWN_SHARE;
        rlx_pause();
        if (turns % 32) continue;
        now = look_at_clock(now);
        const int64_t usual = pool.usual + pool.longest;
        const int in_step = pool.step == seen && seat < pool.seats, spins = now - since < SPIN_NS + in_step * usual;
        ended = in_step && !pool.left ? ended + 1 : 0;
        if (ended > 1 && lead(seat)) return OWN_SHARE; /* the leader had time to do so */
        const int looks = in_step && (spins || looked < LATE_PARTS);
        if (looks && !looked) return OTHER_SHARES;
        if (looks && now - began > pool.patience + (pool.crowded ? usual / 8 : usual)) return LATE_PARTS;
        if (spins || looks) continue;
        if (seat) break;
        rlx_nap();
    }
    rlx_lock(&pool.mutex);
    WRITE_FIRST(pool.asleep[seat], 1);
    while (!called(seat, seen)) rlx_wait(&pool.work[seat], &pool.mutex);
    pool.asleep[seat] = 0;
    rlx_unlock(&pool.mutex);
    return OWN_SHARE;
}

/* Keeps the threads off the caller's processor. Linux tends to wake a thread on that of its waker, where it would wait for the
   caller to finish. */
static void keep_off_caller(void)
{
    const int processor = rlx_processor();
    if (processor == pool.avoided) return;
    pool.avoided = processor;
    rlx_keep_off(processor, pool.threads + 1, pool.started);
}

/* Makes parts of one step after another: of all of them, or of a run. */
static void work_on(int64_t seat)
{
    int64_t seen = 0, since = 0;
    if (seat && pool.inside[seat].since) look_at_clock(pool.inside[seat].since + 4 * pool.usual); /* it was stopped */
    for (int looks = OWN_SHARE; seat || pool.calls; looks = await_step(seat, seen, since, looks)) {
        WRITE_FIRST(pool.inside[seat].state, INSIDE);
        if (pool.step != seen) looks = OWN_SHARE;
        seen = pool.step;
        if (!seat) keep_off_caller();
        if (make_parts(seat, seen, looks) || !looks) since = rlx_clock_ns();
        WRITE_FIRST(pool.inside[seat].state, OUTSIDE);
    }
}

/* A thread of the pool; `given` is its seat, which counts from 1. */
RLX_THREAD(work, given)
{
    const int64_t seat = (int64_t)(intptr_t)given;
    RLX_ALLOW_STOP(pool.inside[seat].state);
    work_on(seat);
    RLX_THREAD_END;
}

/* Makes calls from the first on, which threads share, until one must be made otherwise. Returns how many. */
static int64_t make_run(const rlx_call *calls, int64_t count)
{
    pool.first = pool.step + 1;
    pool.end = pool.first + count;
    pool.status = RLX_OK;
    pool.calls = calls;
    pool.threads[0] = rlx_self();
    pool.floats = rlx_floats_get();
    pool.leader = 0;
    begin_step(pool.first);
    RLX_ALLOW_STOP(pool.inside[0].state);
    work_on(0);
    rlx_forbid_stop();
    for (int64_t turns = 1, seat = 1; seat <= pool.started; turns++)
        if (pool.inside[seat].state <= OUTSIDE) seat++;
        else if (turns % 4096) rlx_pause();
        else rlx_nap();
    rlx_floats_set(pool.floats);
    return pool.end - pool.first;
}

int64_t rlx_parallel_run(const rlx_call *calls, int64_t count, int *status)
{
    int64_t made = 0;
    for (*status = RLX_OK; made < count && *status == RLX_OK;) {
        const rlx_call *call = calls + made;
        if (!call->split || !shared(call->split) || atomic_exchange(&pool.busy, 1)) {
            made += !(*status = make_alone(call));
        } else {
            made += make_run(call, count - made);
            *status = pool.status;
            pool.busy = 0;
        }
    }
    return made;
}

rlx_pool_counts rlx_parallel_counts(void) { return (rlx_pool_counts){pool.started, pool.phases, pool.held_up}; }

/* Only the forking thread exists in the child of a process, so its pool starts empty. */
static void begin_anew(void)
{
    rlx_mutex_init(&pool.mutex);
    for (int64_t i = 0; i < MOST_THREADS; i++) {
        rlx_condition_init(&pool.work[i]);
        pool.asleep[i] = 0;
        pool.inside[i].state = OUTSIDE;
        pool.inside[i].made = 0;
    }
    pool.calls = NULL;
    pool.phase = PHASES;
    pool.busy = 0;
    pool.seats = 0;
    pool.started = 0;
    pool.avoided = -1;
}

void rlx_parallel_init(void)
{
    begin_anew();
#ifndef _WIN32
    pthread_atfork(NULL, NULL, begin_anew);
#endif
}
