/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The store on disk: one JSON file, replaced whole (temporary file, fsync, rename, fsync of the folder), at most once
 * a second while things change, so a killed process loses at most its last second. The text is made on the loop's thread,
 * written by a helper thread. Leases are not saved: after a restart every lease starts anew and every record is in probation.
 */
#ifndef WEIR_REGISTRY_STATE_H
#define WEIR_REGISTRY_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "loop/loop.h"
#include "registry/store.h"

struct state {
    struct loop *loop;
    struct store *store;
    const char *path; /**< NULL: nothing is saved; borrowed */
    struct loop_timer timer;
    bool loading; /**< changes come from the file itself */
    bool dirty;
    uint64_t generation; /**< of the content; written into the file */
    uint64_t started_ns; /**< when the last save began */

    bool writing; /**< the helper thread has text */
    pthread_t thread;
    struct buf text;
    atomic_bool done;
    atomic_int error; /**< errno of the last write, 0 = fine */
    bool failing;     /**< the last write failed: warned already */
};

void state_init(struct state *s, struct loop *loop, struct store *store, const char *path);
/** Wait for a write under way, then save what is not saved yet. */
void state_fini(struct state *s);

/** Read the file into the store. What cannot be read is moved aside as FILE.bad and said in the log. */
void state_load(struct state *s, uint64_t now_ns);

/** The store changed: a save follows within a second. */
void state_changed(struct state *s);

/** The file's text, appended to out. */
void state_write(struct buf *out, const struct store *store, uint64_t generation);
/**
 * Restore every record of a file's text.
 * @param bad entries that were left out.
 * @return 0, WEIR_E_INVALID (not such a file; nothing was restored), WEIR_E_NOMEM.
 */
int state_read(struct store *store,
               struct slice text,
               uint64_t now_ns,
               uint64_t *generation,
               uint32_t *bad) MUST_CHECK;

#endif /* WEIR_REGISTRY_STATE_H */
