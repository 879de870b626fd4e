/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/watch.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "loop/loop.h"

struct gpu_watch {
    struct gpus *gpus; /* the thread's */
    uint64_t interval_ns;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    bool done; /* the thread touches nothing any more but the lock */
    unsigned n;
    uint64_t read_ns;
    struct gpu_reading readings[GPU_DEVICES_MAX];
    struct gpu_reading scratch[GPU_DEVICES_MAX]; /* the thread's */
};

static struct timespec at(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

static void *run(void *arg)
{
    struct gpu_watch *w = arg;
    uint64_t next = loop_clock();

    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        pthread_mutex_unlock(&w->lock);
        uint64_t now = loop_clock();
        unsigned n = gpus_read(w->gpus, now, w->scratch);
        pthread_mutex_lock(&w->lock);
        memcpy(w->readings, w->scratch, n * sizeof(*w->readings));
        w->n = n;
        w->read_ns = now;
        /* After a long stall the beat starts anew instead of catching up. */
        now = loop_clock();
        next = next + w->interval_ns > now ? next + w->interval_ns : now + w->interval_ns;
        const struct timespec until = at(next);
        while (!w->stop && pthread_cond_timedwait(&w->wake, &w->lock, &until) == 0)
            ;
    }
    w->done = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void dispose(struct gpu_watch *w)
{
    gpus_close(w->gpus);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    mem_free(loop_mem(), w);
}

int gpu_watch_start(struct gpus *g, uint64_t interval_ns, struct gpu_watch **out)
{
    struct gpu_watch *w = mem_zalloc(loop_mem(), sizeof(*w));
    pthread_condattr_t monotonic;

    if (!w) {
        gpus_close(g);
        return WEIR_E_NOMEM;
    }
    w->gpus = g;
    w->interval_ns = interval_ns;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&w->thread, NULL, run, w) != 0) {
        dispose(w);
        return WEIR_E_IO;
    }
    *out = w;
    return 0;
}

void gpu_watch_stop(struct gpu_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    const struct timespec until = at(loop_clock() + NS_PER_S);
    while (!w->done && pthread_cond_timedwait(&w->wake, &w->lock, &until) == 0)
        ;
    bool done = w->done;
    pthread_mutex_unlock(&w->lock);
    if (!done) {
        log_warn("gpu", "the driver does not answer; its thread is left behind");
        pthread_detach(w->thread);
        return;
    }
    pthread_join(w->thread, NULL);
    dispose(w);
}

unsigned gpu_watch_copy(struct gpu_watch *w, struct gpu_reading *out, uint64_t *read_ns)
{
    pthread_mutex_lock(&w->lock);
    unsigned n = w->n;
    memcpy(out, w->readings, n * sizeof(*out));
    *read_ns = w->read_ns;
    pthread_mutex_unlock(&w->lock);
    return n;
}
