/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file State on disk: one file, replaced whole (temporary file, fsync, rename, fsync of the folder), at most once a second
 * while things change, so a killed process loses at most its last second. The text is made on the loop's thread, written
 * by a helper thread. One thread otherwise.
 */
#ifndef WEIR_LOOP_STATEFILE_H
#define WEIR_LOOP_STATEFILE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "loop/loop.h"

struct statefile_options {
    const char *path;   /**< NULL: nothing is saved or read; borrowed */
    const char *room;   /**< who speaks in the log; borrowed */
    const char *option; /**< the config key a reader of the log would look at; borrowed */
    /** Append the whole text. A failed buf is said in the log and tried again later. */
    void (*write)(void *ctx, struct buf *out);
    void *ctx;
};

struct statefile {
    struct statefile_options o;
    struct loop *loop;
    struct loop_timer timer;
    bool dirty;
    uint64_t started_ns; /**< when the last save began */

    bool writing; /**< the helper thread has text */
    pthread_t thread;
    struct buf text;
    atomic_bool done;
    atomic_int error; /**< errno of the last write, 0 = fine */
    bool failing;     /**< the last write failed: warned already */
};

void statefile_init(struct statefile *f, struct loop *loop, const struct statefile_options *o);
/** Wait for a write under way, then save what is not saved yet. Harmless when zeroed. */
void statefile_fini(struct statefile *f);

/**
 * Append the file's text.
 * @return 0, WEIR_E_NOTFOUND (no path, no file), or WEIR_E_IO: it cannot be read, was moved aside as FILE.bad and that was
 * said in the log.
 */
int statefile_read(struct statefile *f, struct buf *out) MUST_CHECK;

/** The text makes no sense: keep the file (or a copy of it) as FILE.bad, where nothing overwrites it, and say why. */
void statefile_put_aside(struct statefile *f, const char *why, bool copy);

/** What would be written has changed: a save follows within a second. */
void statefile_changed(struct statefile *f);

#endif /* WEIR_LOOP_STATEFILE_H */
