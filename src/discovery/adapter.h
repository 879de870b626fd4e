/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What a type of source is to discovery.c. An adapter declares its lists (source_list_init) in open(), begins to ask
 * in begin(), and says what it hears through source.h. Internal to discovery.
 */
#ifndef WEIR_DISCOVERY_ADAPTER_H
#define WEIR_DISCOVERY_ADAPTER_H

#include "discovery/discovery.h"

struct adapter_kind {
    /**
     * Make the adapter; nothing is sent yet.
     * @param out owned by discovery.c, ended by close(). @return 0, or an error that was said in the log.
     */
    /* env and conf live until after close(). */
    int (*open)(const struct discovery_env *env,
                const struct conf_source *conf,
                struct source *source,
                void **out);
    /** Start asking. The saved lists are loaded. */
    void (*begin)(void *adapter);
    /** Stop whatever is under way and free it. The lists were ended before: nothing may be said any more. */
    void (*close)(void *adapter);
};

extern const struct adapter_kind discovery_consul;
extern const struct adapter_kind discovery_dns;
extern const struct adapter_kind discovery_etcd;
extern const struct adapter_kind discovery_file;
extern const struct adapter_kind discovery_kubernetes;
extern const struct adapter_kind discovery_nacos;

#endif /* WEIR_DISCOVERY_ADAPTER_H */
