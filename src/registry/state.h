/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The store on disk (loop/statefile.h). Leases are not saved: after a restart every lease starts anew and every
 * record is in probation.
 */
#ifndef WEIR_REGISTRY_STATE_H
#define WEIR_REGISTRY_STATE_H

#include "base/buf.h"
#include "loop/statefile.h"
#include "registry/store.h"

struct state {
    struct statefile file;
    struct store *store;
    bool loading;        /**< changes come from the file itself */
    uint64_t generation; /**< of the content; written into the file */
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
