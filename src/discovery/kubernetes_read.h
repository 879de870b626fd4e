/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What the API server of Kubernetes says of EndpointSlices and Pods: lists, events of a watch, Status documents; and
 * the paths that ask for them. Asks nothing, keeps nothing. Everything out is borrowed from the arena.
 */
#ifndef WEIR_DISCOVERY_KUBERNETES_CODEC_H
#define WEIR_DISCOVERY_KUBERNETES_CODEC_H

#include <sys/types.h>

#include "base/arena.h"
#include "base/buf.h"
#include "discovery/json_cut.h"
#include "model/update_t.h"

enum kube_kind { KUBE_SLICES, KUBE_PODS };

/** One address of a slice with the port that is served. */
struct kube_endpoint {
    struct slice host; /**< without brackets */
    uint16_t port;
    bool tls;                          /**< appProtocol https */
    bool ready, serving, terminating;  /**< with what an absent one means */
    struct slice pod, uid, node, zone; /**< absent: not said */
    struct json_seen seen;             /**< in an event; zeroed: in none */
};

/** Keys with their values as one text: most objects are only kept, and seldom looked into. */
struct kube_pairs {
    struct slice text; /**< key, value, key, ..., each with a NUL behind it */
    uint32_t n;        /**< pairs */
};

/** A slice or a pod: what counts of it. */
struct kube_object {
    struct slice name;
    struct slice version; /**< metadata.resourceVersion: opaque */
    /* of a slice */
    struct slice service; /**< absent: none */
    struct kube_endpoint *endpoints;
    uint32_t n_endpoints;
    uint32_t n_bad; /**< without an address that can be used, or without the port */
    /* of a pod */
    struct kube_pairs
        metadata; /**< annotations and labels weir.dev/KEY, nacos.metadata.KEY as KEY; annotations win */
    struct kube_pairs labels; /**< as they are */
};

struct kube_list {
    struct kube_object *objects;
    uint32_t n;
    struct slice version; /**< of the list */
    struct slice more;    /**< token of the next piece; absent: this was the last */
};

enum kube_event_type { KUBE_PUT, KUBE_GONE, KUBE_BOOKMARK, KUBE_ERROR };
struct kube_event {
    enum kube_event_type type;
    struct kube_object object; /**< of a bookmark only the version */
    uint32_t code;             /**< of an error: 410, ... */
    struct slice why;
};

/** @param port name or number; absent: the first one. @return 0; WEIR_E_INVALID: not such a list; WEIR_E_NOMEM. */
int kube_read_list(struct arena *a,
                   enum kube_kind kind,
                   struct slice port,
                   struct slice body,
                   struct kube_list *out) MUST_CHECK;

/**
 * Results as above. Unknown types of events are WEIR_E_INVALID.
 * @param before a slice as it was: endpoints of which the text is the same are not read again, but borrowed from it. NULL:
 * not known. Which one is for the caller to say by kube_event_name().
 * @param seed of what was seen, the same for all events; see discovery/json_cut.h.
 */
int kube_read_event(struct arena *a,
                    enum kube_kind kind,
                    struct slice port,
                    struct slice text,
                    const struct kube_object *before,
                    uint64_t seed,
                    struct kube_event *out) MUST_CHECK;

/** Of whom an event seems to speak, without reading it; absent: it does not say. Borrowed from the text. */
struct slice kube_event_name(struct slice text);

/** The message of a Status document, absent when it is none. */
struct slice kube_read_status(struct arena *a, struct slice body);

/** Deep, but for the version. @return 0, WEIR_E_NOMEM. */
int kube_copy(struct arena *a, const struct kube_object *from, struct kube_object *to) MUST_CHECK;

/** Write them down. @param out room for p->n, borrowed from p. Cost: O(text). */
void kube_unpack(const struct kube_pairs *p, struct kv *out);

/** Do both say the same, whatever their versions? */
bool kube_same(const struct kube_object *one, const struct kube_object *other);

/**
 * What the source says of an endpoint.
 * key and services are the caller's.
 * @param pod NULL: nothing is known of it. Borrowed, as e is.
 * @return 0, WEIR_E_NOMEM.
 */
int kube_instance(struct arena *a,
                  const struct kube_endpoint *e,
                  const struct kube_object *pod,
                  struct instance *out) MUST_CHECK;

/** Where one document of a stream ends: they follow each other with or without line ends. Zeroed at the start. */
struct kube_frame {
    size_t at; /**< bytes looked at */
    uint32_t depth;
    bool in_text, escaped;
};

/**
 * @param text all that came and was not taken yet.
 * @return bytes of the first document, then reset; 0: not whole yet; WEIR_E_INVALID: this is no stream of objects.
 */
ssize_t kube_frame(struct kube_frame *f, struct slice text) MUST_CHECK;

/** What is asked. */
struct kube_query {
    enum kube_kind kind;
    struct slice ns;
    struct slice selector;      /**< of labels; absent: all */
    bool watch;                 /**< from `version` on, that long */
    struct slice version, more; /**< more: of a list */
    uint32_t limit, timeout_s;
};
/** Path and query. @return 0 or the buffer's sticky error. */
int kube_write_path(struct buf *out, const struct kube_query *q);

/** "kubernetes.io/service-name in (a,b)". @return 0 or the buffer's sticky error. */
int kube_write_selector(struct buf *out, const struct slice *services, uint32_t n);

#endif /* WEIR_DISCOVERY_KUBERNETES_CODEC_H */
