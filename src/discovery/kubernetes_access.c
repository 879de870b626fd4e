/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/kubernetes_access.h"

#include <stdlib.h>

#include "confio/confio.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum { ARENA_BYTES_MAX = 1 << 16, TEXT_BYTES_MAX = 4096 };

#define OF_POD "/var/run/secrets/kubernetes.io/serviceaccount/"

static const char *variable(const char *name)
{
    const char *value = getenv(name); /* NOLINT(concurrency-mt-unsafe): nothing here calls setenv */

    return value && value[0] ? value : NULL;
}

static int set_servers(struct kube_access *a, struct slice url)
{
    struct slice *one = arena_array(&a->arena, 1, sizeof(*one));

    if (!one || arena_slice(&a->arena, url, one))
        return WEIR_E_NOMEM;
    a->servers = one;
    a->n_servers = 1;
    return 0;
}

static int read_token(const struct remote *r, const char *path, char **out)
{
    const struct conf_secret from = {.kind = CONF_SECRET_FILE, .name = slice_str(path)};

    return remote_secret(r, &from, out);
}

/* --- in a pod --- */

/* The namespace that a pod is in stands in a file; no newline at its end. */
static int own_namespace(const struct remote *r, struct kube_access *a)
{
    char *text;
    int rc = read_token(r, OF_POD "namespace", &text);

    if (rc)
        return rc;
    rc = arena_slice(&a->arena, slice_str(text), &a->ns);
    confio_secret_free(loop_mem(), text);
    return rc;
}

static int of_pod(const struct remote *r, struct kube_access *a)
{
    const char *host = variable("KUBERNETES_SERVICE_HOST");
    const char *port = variable("KUBERNETES_SERVICE_PORT_HTTPS");
    struct buf url;

    if (!port)
        port = variable("KUBERNETES_SERVICE_PORT");
    if (!host || !port) {
        log_error(
            "discovery",
            "source=%s: this is no pod (KUBERNETES_SERVICE_HOST is not set): give kubeconfig, "
            "or servers",
            r->source->o.name);
        return WEIR_E_INVALID;
    }
    buf_init(&url, loop_mem(), TEXT_BYTES_MAX);
    bool v6 = strchr(host, ':') != NULL;
    buf_put_str(&url, v6 ? "https://[" : "https://");
    buf_put_str(&url, host);
    buf_put_str(&url, v6 ? "]:" : ":");
    buf_put_str(&url, port);
    int rc = url.err ? url.err : set_servers(a, buf_slice(&url));
    buf_fini(&url);
    a->tls.ca = OF_POD "ca.crt";
    if (!rc && !r->conf->ns.n)
        rc = own_namespace(r, a);
    return rc || r->conf->token.kind != CONF_SECRET_NONE ? rc
                                                         : read_token(r, OF_POD "token", &a->token);
}

/* --- by a kubeconfig --- */

static int of_file(const struct remote *r, const char *path, struct kube_access *a)
{
    struct conf_errors *errors = mem_zalloc(loop_mem(), sizeof(*errors));
    struct kubeconfig *k = &a->file;

    if (!errors)
        return WEIR_E_NOMEM;
    int rc = confio_kubeconfig(loop_mem(), path, k, errors);
    if (rc)
        log_error("discovery", "source=%s: kubeconfig: %s", r->source->o.name,
                  errors->n ? errors->list[0].text : err_text(rc));
    mem_free(loop_mem(), errors);
    if (rc)
        return rc;
    a->ns = k->ns;
    a->tls = (struct fetch_tls){.ca = k->ca.p,
                                .cert = k->cert.p,
                                .key = k->key.p,
                                .server_name = k->server_name.p,
                                .ca_pem = k->ca_pem,
                                .cert_pem = k->cert_pem,
                                .key_pem = k->key_pem,
                                .insecure_skip_verify = k->insecure};
    rc = set_servers(a, k->server);
    if (rc || r->conf->token.kind != CONF_SECRET_NONE)
        return rc;
    if (k->token_file.p)
        return read_token(r, k->token_file.p, &a->token);
    if (k->token.p)
        a->token = mem_strdup(loop_mem(), k->token);
    return k->token.p && !a->token ? WEIR_E_NOMEM : 0;
}

/* --- all of it --- */

/* What the configuration says beats what the file or the pod say. */
static void prefer_conf(const struct conf_source *conf, struct kube_access *a)
{
    if (conf->n_servers) {
        a->servers = conf->servers;
        a->n_servers = conf->n_servers;
    }
    if (conf->ca.p) {
        a->tls.ca = conf->ca.p;
        a->tls.ca_pem = (struct slice){NULL, 0};
    }
    if (conf->cert.p) {
        a->tls.cert = conf->cert.p;
        a->tls.key = conf->key.p;
        a->tls.cert_pem = a->tls.key_pem = (struct slice){NULL, 0};
    }
    if (conf->ns.n)
        a->ns = conf->ns;
    if (!a->ns.n)
        a->ns = SLICE("default");
}

int kube_access_read(const struct remote *r,
                     const struct conf_source *conf,
                     struct kube_access *out)
{
    int rc = 0;

    *out = (struct kube_access){.token = NULL};
    arena_init(&out->arena, loop_mem(), ARENA_BYTES_MAX);
    arena_init(&out->file.arena, loop_mem(), ARENA_BYTES_MAX);
    if (conf->kubeconfig.p)
        rc = of_file(r, conf->kubeconfig.p, out);
    else if (!conf->n_servers)
        rc = of_pod(r, out);
    if (rc == 0 && conf->token.kind != CONF_SECRET_NONE)
        rc = remote_secret(r, &conf->token, &out->token);
    prefer_conf(conf, out);
    if (rc)
        kube_access_fini(out);
    return rc;
}

void kube_access_fini(struct kube_access *a)
{
    if (!a->arena.mem)
        return;
    confio_secret_free(loop_mem(), a->token);
    confio_kubeconfig_fini(&a->file);
    arena_fini(&a->arena);
    *a = (struct kube_access){.token = NULL};
}
