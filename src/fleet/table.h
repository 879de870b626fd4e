/* SPDX-License-Identifier: Apache-2.0 */
/** @file The fleet table's insides, shared by fleet.c (updates) and snapshot.c (builds). Private to the room. */
#ifndef WEIR_FLEET_TABLE_H
#define WEIR_FLEET_TABLE_H

#include "base/arena.h"
#include "base/list.h"
#include "base/map.h"
#include "fleet/fleet.h"
#include "fleet/health.h"
#include "fleet/metadata.h"
#include "fleet/slab.h"

/** What one source says under one key: a deep copy of its instance, with the metadata read. */
struct record {
    struct list in_entry; /**< of one entry, by source, then arrival */
    struct entry *entry;
    uint16_t source;
    bool plain;         /**< nothing is said twice in it */
    uint32_t refs;      /**< the table's, and of what is shown of it */
    struct arena arena; /**< all text and arrays below */
    struct instance
        i; /**< metadata keys of the contract already merged in where a typed field was not set */
    struct slice address; /**< key in fleet.entries */
    struct slice authority;
    struct slice gpu_type; /**< from metadata */
    uint64_t identity;     /**< hash of all that snapshots show, fast metadata keys apart */
    uint64_t fast;         /**< hash of the fast metadata keys */
    struct sample *told;   /**< by its metadata; NULL: nothing */
    uint64_t report_time_ms;
    uint64_t report_interval_ns; /**< learned from two report times; 0 = not yet */
    uint64_t epoch, seq;         /**< of the last typed report */
    bool reported;
};

/** All generations of one address share its counter; entries and cells hold references (count.refs). */
struct fleet_address {
    struct address_count count;
    uint32_t
        key_n; /**< here, so that many of these share a cache line: a pick looks at all counts */
    char *key; /**< owned */
};

/** Where a sample came from; a higher one counts before a lower one while it is fresh. */
enum sample_rank { SAMPLE_SCRAPED, SAMPLE_METADATA, SAMPLE_TYPED };

/** Models that its own /v1/models told, for when no source tells any. */
struct probed_models {
    struct arena arena;
    const struct model_ref *list;
    uint32_t n;
};

/** What is known of an endpoint's devices from elsewhere; see fleet/devices.c. */
struct found_devices {
    struct sample sample; /**< known == 0: nothing */
    uint64_t until_ns;
    struct arena arena;
    const struct device *list; /**< where no source tells any */
    uint32_t n;
};

/** One endpoint: what all sources say about one (scheme, host, port). */
struct entry {
    struct list records; /**< never empty while the entry is in the table */
    struct list stale;   /**< in fleet.stale: the newest snapshot shows it as it was */
    struct slice address_key;
    struct fleet_address *address;
    struct cell *cell;
    uint32_t slot, generation;
    bool operator_drain;
    struct health_track track;
    struct probed_models *probed;   /**< NULL: none, as for all whose sources tell their models */
    enum engine_kind probed_engine; /**< found out by asking; ENGINE_UNKNOWN = not */
    /* the sample in the cell: who reported it; see offer_sample() */
    bool has_sample;
    enum sample_rank sample_rank;
    uint16_t sample_source;
    uint64_t sample_until_ns;
    struct sample base;          /**< that sample as it was told */
    bool based;                  /**< it is part of what was published last */
    struct found_devices *found; /**< NULL: nothing, as for all that no exporter speaks of */
};

struct slot {
    struct entry *entry; /**< NULL: free */
    struct shown *shown; /**< in the newest snapshot; NULL: not in it */
    uint32_t generation; /**< given out last */
};

/** A model that was seen or stands in the config. */
struct known_model {
    struct slice id; /**< owned, behind the struct */
    bool configured;
    uint64_t seen_ns; /**< last time somebody served it */
    bool seen;
    /* scratch of one build */
    uint32_t *members;
    uint32_t n;
    uint32_t last; /**< member counted last, + 1 */
};

/** A snapshot with what it owns. */
struct built {
    struct snapshot s;
    struct built *older;
    struct arena arena;
};

struct fleet {
    const struct mem *mem;
    struct fleet_options options;
    struct health_rules health;
    struct map *records;    /**< per source: key to record */
    bool *synced;           /**< per source */
    bool *silent;           /**< per source: cannot be asked now */
    struct map entries;     /**< address key to entry */
    struct map addresses;   /**< address key to fleet_address: entries and old cells hold it */
    struct map models;      /**< id to known_model */
    struct map devices;     /**< UUID to device_count; none is ever dropped */
    bool unshared;          /**< some device has one cell left of several; gates do not know yet */
    bool any_devices;       /**< some entry had numbers of its devices from elsewhere */
    struct map device_sets; /**< UUIDs to bound_set; likewise */
    struct slot *slots;
    uint32_t *free_slots;
    uint32_t n_slots, n_free;
    struct slab cells;
    struct slab address_slab;
    struct cell_home home;
    bool dirty;
    struct list stale; /**< entries */
    struct built *newest;
    struct shown *retired, *retired_last; /**< by last_seq */
};

/** Deep copy with metadata read. WEIR_E_INVALID, WEIR_E_FULL (too much text), WEIR_E_NOMEM. */
int fleet_record_new(const struct mem *mem,
                     uint16_t source,
                     const struct instance *i,
                     struct record **out) MUST_CHECK;
/** Give up a reference. */
void fleet_record_put(struct record *r);

/** Key of an address, lower case: "s" or "p", port, host. @param out at least ADDRESS_KEY_MAX bytes. */
enum { ADDRESS_KEY_MAX = ENDPOINT_TEXT_MAX + 8 };
struct slice fleet_address_key(bool tls, struct slice host, uint16_t port, char *out);

/** Make sure the models are in fleet.models. WEIR_E_NOMEM, WEIR_E_FULL. */
int fleet_note_models(struct fleet *f, const struct model_ref *models, uint32_t n) MUST_CHECK;
/** Drop one snapshot, already out of the list. */
void fleet_free_built(struct fleet *f, struct built *b);

/** An entry with its first cell, in the table but without records. WEIR_E_FULL, WEIR_E_NOMEM. */
int fleet_entry_new(struct fleet *f, struct slice key, struct entry **out) MUST_CHECK;
/** The next snapshot shows it anew. */
void fleet_entry_stale(struct fleet *f, struct entry *e);
/** The same, and there has to be one. */
void fleet_entry_changed(struct fleet *f, struct entry *e);
/** Its last record is gone. */
void fleet_entry_remove(struct fleet *f, struct entry *e);
/** By its current generation, or NULL. */
struct entry *fleet_entry_at(const struct fleet *f, uint32_t slot, uint32_t generation);
/** A cell with one reference, or NULL. */
struct cell *
fleet_cell_new(struct fleet *f, struct fleet_address *a, uint32_t slot, uint32_t generation);
/** A new generation with this cell; the old one lives on for its reservations. */
void fleet_entry_renew(struct fleet *f, struct entry *e, struct cell *fresh);

/** The entry's sample, with what is known of its devices besides, into its cell. @param newer as in fleet_cell_publish(). */
void fleet_entry_publish(struct entry *e, bool newer, uint64_t now_ns);
/** What it told of its models is of another life. */
void fleet_entry_forget_models(struct fleet *f, struct entry *e);
/** What was known of its devices from elsewhere is of another life. */
void fleet_entry_forget_devices(struct fleet *f, struct entry *e);

/**
 * The cell's promises are made on these devices from now on. WEIR_E_NOMEM: on those before. Beyond DEVICE_SETS_MAX
 * different sets in a fleet's life new ones count as unknown.
 */
int fleet_bind_devices(struct fleet *f, struct cell *c, const struct endpoint *e) MUST_CHECK;
/** Once all of a snapshot are bound: does anybody else promise memory on its devices, or did an earlier life of it? */
void fleet_mark_shared(struct cell *c);
/** The same of all that are shown. */
void fleet_mark_all_shared(struct fleet *f);
/** It is about to be freed: nobody's promises are its any more. Devices that it was bound to before go on counting it. */
void fleet_unbind_devices(struct fleet *f, struct cell *c);
void fleet_free_devices(struct fleet *f);
enum { DEVICE_SETS_MAX = 65536 };

/** Give back cells whose last reference is gone. */
void fleet_sweep(struct fleet *f);
/** Drop the control thread's own reference. */
void fleet_cell_drop(struct fleet *f, struct cell *c);

#endif /* WEIR_FLEET_TABLE_H */
