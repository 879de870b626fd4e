/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts from files. Everything that can be wrong with a file is found here, before it is put in force. */
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bug.h"
#include "loop/alloc.h"
#include "net/tls_priv.h"

/* A file without the block that is looked for; OpenSSL says "no start line" of certificates and "unsupported" of keys. */
static bool holds_none(unsigned long code)
{
    return (ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE) ||
           ERR_GET_REASON(code) == ERR_R_UNSUPPORTED;
}

static int refuse(char why[NET_TLS_WHY], const char *file, const char *what)
{
    unsigned long code = ERR_peek_error(); /* the first is the cause */
    const char *reason = !code                    ? NULL
                         : ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code))
                         : holds_none(code)       ? "there is none in it"
                                                  : ERR_reason_error_string(code);

    snprintf(why, NET_TLS_WHY, "%s: %s%s%s", file, what, reason ? ": " : "", reason ? reason : "");
    ERR_clear_error();
    return WEIR_E_INVALID;
}

/* A key with a passphrase must fail, not ask on a terminal. */
static int no_passphrase(char *p, int n, int writing, void *ctx)
{
    (void)p, (void)n, (void)writing;
    *(bool *)ctx = true;
    return -1;
}

static int64_t seconds_of(const ASN1_TIME *at)
{
    ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    int days = 0;
    int seconds = 0;
    int64_t sum = INT64_MAX;

    if (epoch && ASN1_TIME_diff(&days, &seconds, epoch, at))
        sum = (int64_t)days * 86400 + seconds;
    ASN1_TIME_free(epoch);
    return sum;
}

/* "Nov 30 12:00:00 2026 GMT" */
static void time_text(const ASN1_TIME *at, char *out, size_t n)
{
    BIO *b = BIO_new(BIO_s_mem());

    out[0] = '\0';
    if (b && ASN1_TIME_print(b, at) == 1) {
        int got = BIO_read(b, out, (int)n - 1);
        out[got > 0 ? got : 0] = '\0';
    }
    BIO_free(b);
}

static int
check_dates(struct net_tls_context *x, const X509 *cert, unsigned pair, const char *file, char *why)
{
    const ASN1_TIME *from = X509_get0_notBefore(cert);
    const ASN1_TIME *to = X509_get0_notAfter(cert);
    char when[64];

    if (X509_cmp_current_time(to) <= 0) {
        time_text(to, when, sizeof(when));
        snprintf(why, NET_TLS_WHY, "%s: the certificate expired on %s", file, when);
        return WEIR_E_INVALID;
    }
    if (X509_cmp_current_time(from) > 0) {
        time_text(from, when, sizeof(when));
        snprintf(why, NET_TLS_WHY, "%s: the certificate is not valid before %s", file, when);
        return WEIR_E_INVALID;
    }
    int64_t end = seconds_of(to);
    if (end < x->not_after) {
        x->not_after = end;
        x->ends_first = pair;
    }
    return 0;
}

static int refuse_key(const struct net_tls_pair *p, bool passphrase, char *why)
{
    unsigned long code = ERR_peek_last_error();
    int rc = WEIR_E_INVALID;

    if (passphrase)
        snprintf(why, NET_TLS_WHY,
                 "%s: the key has a passphrase, and nobody is here to type it; take it off with "
                 "openssl pkey -in %s -out FILE",
                 p->key, p->key);
    else if (ERR_GET_LIB(code) == ERR_LIB_X509 &&
             ERR_GET_REASON(code) == X509_R_KEY_VALUES_MISMATCH)
        snprintf(why, NET_TLS_WHY, "%s: is not the key of the certificate in %s", p->key, p->cert);
    else
        rc = refuse(why, p->key, "cannot be used as a key (PEM, without a passphrase)");
    ERR_clear_error();
    return rc;
}

static int load_pair(
    struct net_tls_context *x, SSL_CTX *c, unsigned pair, const struct net_tls_pair *p, char *why)
{
    bool passphrase = false;

    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(c, no_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(c, &passphrase);
    if (SSL_CTX_use_certificate_chain_file(c, p->cert) != 1)
        return refuse(why, p->cert, "cannot be used as a certificate (PEM)");
    int rc = check_dates(x, SSL_CTX_get0_certificate(c), pair, p->cert, why);
    if (rc)
        return rc;
    if (SSL_CTX_use_PrivateKey_file(c, p->key, SSL_FILETYPE_PEM) != 1)
        rc = refuse_key(p, passphrase, why);
    SSL_CTX_set_default_passwd_cb_userdata(c, NULL); /* it was this function's */
    SSL_CTX_set_default_passwd_cb(c, NULL);
    if (rc)
        return rc;
    if (SSL_CTX_check_private_key(c) != 1) {
        snprintf(why, NET_TLS_WHY, "%s: is not the key of the certificate in %s", p->key, p->cert);
        ERR_clear_error();
        return WEIR_E_INVALID;
    }
    return 0;
}

static struct net_tls_context *context_new(bool server)
{
    static _Atomic uint64_t ids;
    struct net_tls_context *x = mem_zalloc(loop_mem(), sizeof(*x));

    if (!x)
        return NULL;
    x->refs = 1;
    x->id = ++ids;
    x->server = server;
    x->not_after = INT64_MAX;
    return x;
}

/* ---- servers ---- */

static int on_alpn(SSL *ssl,
                   const unsigned char **out,
                   unsigned char *n,
                   const unsigned char *in,
                   unsigned n_in,
                   void *ctx)
{
    static const unsigned char ours[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

    (void)ssl, (void)ctx;
    for (unsigned i = 0; i < n_in && i + 1U + in[i] <= n_in; i += 1U + in[i])
        if (in[i] == ours[0] && memcmp(in + i, ours, sizeof(ours)) == 0) {
            *out = in + i + 1;
            *n = in[i];
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int on_name(SSL *ssl, int *alert, void *ctx)
{
    const struct net_tls_context *x = ctx;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

    (void)alert;
    for (unsigned i = 0; name && i < x->n; i++)
        if (X509_check_host(SSL_CTX_get0_certificate(x->ctx[i]), name, 0,
                            X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1) {
            SSL_set_SSL_CTX(ssl, x->ctx[i]);
            break;
        }
    return SSL_TLSEXT_ERR_OK;
}

static int ask_clients(SSL_CTX *c, const struct net_tls_server *o, char *why)
{
    int mode = SSL_VERIFY_PEER | (o->client_optional ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT);

    ERR_clear_error();
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(o->client_ca);
    if (!names || SSL_CTX_load_verify_file(c, o->client_ca) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return refuse(why, o->client_ca, "cannot be used as certificates (PEM)");
    }
    SSL_CTX_set_client_CA_list(c, names); /* takes it */
    SSL_CTX_set_verify(c, mode, NULL);
    return 0;
}

int net_tls_server_new(const struct net_tls_server *o,
                       struct net_tls_context **out,
                       char why[NET_TLS_WHY])
{
    BUG_ON(o->n_pairs == 0 || o->n_pairs > NET_TLS_PAIRS_MAX);
    struct net_tls_context *x = context_new(true);
    int rc = x ? 0 : WEIR_E_NOMEM;

    snprintf(why, NET_TLS_WHY, "out of memory");
    for (unsigned i = 0; i < o->n_pairs && rc == 0; i++) {
        x->ctx[i] = tls_ctx_new(true);
        if (!x->ctx[i]) {
            rc = WEIR_E_NOMEM;
            break;
        }
        x->n = i + 1;
        rc = load_pair(x, x->ctx[i], i, &o->pairs[i], why);
        if (rc == 0 && o->client_ca)
            rc = ask_clients(x->ctx[i], o, why);
        SSL_CTX_set_alpn_select_cb(x->ctx[i], on_alpn, NULL);
    }
    if (rc) {
        net_tls_put(x);
        return rc;
    }
    SSL_CTX_set_tlsext_servername_callback(x->ctx[0], on_name);
    SSL_CTX_set_tlsext_servername_arg(x->ctx[0], x);
    x->handshake_ns = o->handshake_ns;
    x->handshakes_max = o->handshakes_max;
    *out = x;
    return 0;
}

/* ---- clients ---- */

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void look_at(const char *env, const char *standard, struct stat *out)
{
    const char *path = secure_getenv(env);

    if (stat(path ? path : standard, out) != 0)
        memset(out, 0, sizeof(*out));
}

/* The system's roots. To read them takes some 20 ms, and a reload asks for them whatever it changes: so they are read again
 * only when they are others. @return a reference, or NULL without memory. */
static X509_STORE *system_roots(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static X509_STORE *kept;
    static struct stat kept_file, kept_folder;
    struct stat file, folder;

    look_at(X509_get_default_cert_file_env(), X509_get_default_cert_file(), &file);
    look_at(X509_get_default_cert_dir_env(), X509_get_default_cert_dir(), &folder);
    pthread_mutex_lock(&lock);
    if (!kept || !same_file(&file, &kept_file) || !same_file(&folder, &kept_folder)) {
        X509_STORE_free(kept);
        kept = X509_STORE_new();
        /* None at all is for whoever connects to find. */
        if (kept)
            (void)X509_STORE_set_default_paths(kept);
        kept_file = file;
        kept_folder = folder;
    }
    X509_STORE *roots = kept && X509_STORE_up_ref(kept) ? kept : NULL;
    pthread_mutex_unlock(&lock);
    ERR_clear_error();
    return roots;
}

int net_tls_client_new(const struct net_tls_client *o,
                       struct net_tls_context **out,
                       char why[NET_TLS_WHY])
{
    struct net_tls_context *x = context_new(false);
    int rc = 0;

    snprintf(why, NET_TLS_WHY, "out of memory");
    if (x)
        x->ctx[0] = tls_ctx_new(false);
    if (!x || !x->ctx[0]) {
        net_tls_put(x);
        return WEIR_E_NOMEM;
    }
    x->n = 1;
    x->insecure = o->insecure_skip_verify;
    SSL_CTX_set_verify(x->ctx[0], o->insecure_skip_verify ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
                       NULL);
    ERR_clear_error();
    if (o->ca && SSL_CTX_load_verify_file(x->ctx[0], o->ca) != 1) {
        rc = refuse(why, o->ca, "cannot be used as certificates (PEM)");
    } else if (!o->ca && !o->insecure_skip_verify) {
        X509_STORE *roots = system_roots();
        if (roots)
            SSL_CTX_set_cert_store(x->ctx[0], roots); /* takes it */
        else
            rc = WEIR_E_NOMEM;
    }
    if (rc == 0 && o->pair.cert)
        rc = load_pair(x, x->ctx[0], 0, &o->pair, why);
    if (rc == 0 && o->server_name) {
        x->server_name = mem_strdup(loop_mem(), slice_str(o->server_name));
        rc = x->server_name ? 0 : WEIR_E_NOMEM;
    }
    if (rc) {
        net_tls_put(x);
        return rc;
    }
    *out = x;
    return 0;
}

/* ---- references ---- */

struct net_tls_context *net_tls_get(struct net_tls_context *x)
{
    if (x)
        atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    return x;
}

void net_tls_put(struct net_tls_context *x)
{
    if (!x || atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned i = 0; i < x->n; i++)
        SSL_CTX_free(x->ctx[i]);
    mem_free(loop_mem(), x->server_name);
    mem_free(loop_mem(), x);
}

int64_t net_tls_not_after(const struct net_tls_context *x, unsigned *pair)
{
    if (pair)
        *pair = x->ends_first;
    return x->not_after;
}

void net_tls_slot_init(struct net_tls_slot *s)
{
    pthread_mutex_init(&s->lock, NULL);
    s->now = NULL;
}

struct net_tls_context *net_tls_slot_get(struct net_tls_slot *s)
{
    pthread_mutex_lock(&s->lock);
    struct net_tls_context *x = net_tls_get(s->now);
    pthread_mutex_unlock(&s->lock);
    return x;
}

void net_tls_slot_set(struct net_tls_slot *s, struct net_tls_context *x)
{
    pthread_mutex_lock(&s->lock);
    struct net_tls_context *old = s->now;
    s->now = x;
    pthread_mutex_unlock(&s->lock);
    net_tls_put(old);
}

void net_tls_slot_fini(struct net_tls_slot *s)
{
    net_tls_slot_set(s, NULL);
    pthread_mutex_destroy(&s->lock);
}
