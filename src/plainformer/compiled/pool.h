/* Work cut into pieces, which are taken by whoever is awake. The caller takes pieces too, and waits only for those that
   others have begun: on a busy machine a thread that does not get its turn holds nobody up, as it would at the barrier
   that ends a parallel loop of OpenMP. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

typedef void (*Piece)(const void *job, long piece);

enum { SPINS = 20000, MOST_WORKERS = 255 }; /* looks for work before a worker goes to sleep: tens of microseconds */

static struct {
    pthread_mutex_t caller, lock; /* one caller at a time; the lock is held to begin, to join and to close a job */
    pthread_cond_t work;
    Piece run;
    const void *job;
    long n_pieces;
    int room; /* how many workers may still join */
    int n_workers;
    atomic_long next;
    atomic_int busy;
    atomic_ulong call;
} pool = {.caller = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

static inline void breathe(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_pieces(void) {
    for (long piece; (piece = atomic_fetch_add(&pool.next, 1)) < pool.n_pieces;) pool.run(pool.job, piece);
}

static void *worker(void *first_call) {
    unsigned long seen = (unsigned long)(uintptr_t)first_call;
    for (;;) {
        for (int spin = 0; spin < SPINS && atomic_load(&pool.call) == seen; spin++) breathe();
        pthread_mutex_lock(&pool.lock);
        while (atomic_load(&pool.call) == seen) pthread_cond_wait(&pool.work, &pool.lock);
        seen = atomic_load(&pool.call);
        int joins = pool.room > 0;
        if (joins) {
            pool.room--;
            atomic_fetch_add(&pool.busy, 1);
        }
        pthread_mutex_unlock(&pool.lock);
        if (joins) {
            take_pieces();
            atomic_fetch_sub(&pool.busy, 1);
        }
    }
    return NULL;
}

/* A forked process has none of its parent's workers: locks that they hold would stay so, and a sleep that they are in
   is waited for by whoever wakes them. */
static void start_anew(void) {
    pthread_mutex_init(&pool.caller, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.work, NULL);
    pool.room = pool.n_workers = 0;
    atomic_store(&pool.busy, 0);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, start_anew); }

/* As many workers as are asked for, or as many as the system gives. */
static void hire(int n_workers) {
    while (pool.n_workers < n_workers && pool.n_workers < MOST_WORKERS) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, (void *)(uintptr_t)atomic_load(&pool.call))) return;
        pthread_detach(thread);
        pool.n_workers++;
    }
}

/* run(job, 0), run(job, 1), ... run(job, n_pieces - 1), by at most n_threads at a time. */
static void share(Piece run, const void *job, long n_pieces, int n_threads) {
    if (n_threads < 2 || n_pieces < 2 || pthread_mutex_trylock(&pool.caller)) {
        for (long piece = 0; piece < n_pieces; piece++) run(job, piece);
        return;
    }
    hire(n_threads - 1);
    pthread_mutex_lock(&pool.lock);
    pool.run = run;
    pool.job = job;
    pool.n_pieces = n_pieces;
    pool.room = n_threads - 1;
    atomic_store(&pool.next, 0);
    atomic_fetch_add(&pool.call, 1);
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    take_pieces();
    pthread_mutex_lock(&pool.lock);
    pool.room = 0;
    pthread_mutex_unlock(&pool.lock);
    for (int spin = 0; atomic_load(&pool.busy); spin++) {
        if (spin < SPINS) breathe();
        else sched_yield();
    }
    pthread_mutex_unlock(&pool.caller);
}
