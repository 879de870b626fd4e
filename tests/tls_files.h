/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates for tests, made on the spot: a folder with a root and what it signs. */
#ifndef WEIR_TESTS_TLS_FILES_H
#define WEIR_TESTS_TLS_FILES_H

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TLS_PATH_MAX = 256, TLS_DAY = 86400 };

struct tls_files {
    char dir[64];
    EVP_PKEY *ca_key;
    X509 *ca;
    long serial;
};

static inline const char *tls_path(const struct tls_files *f, const char *name)
{
    static char ring[64][TLS_PATH_MAX];
    static unsigned at;

    at = (at + 1) % 64;
    snprintf(ring[at], sizeof(ring[at]), "%s/%s", f->dir, name);
    return ring[at];
}

static inline void tls_write(const struct tls_files *f, const char *name, X509 *cert, EVP_PKEY *key)
{
    FILE *out = fopen(tls_path(f, name), "w");

    assert_non_null(out);
    if (cert)
        assert_int_equal(PEM_write_X509(out, cert), 1);
    if (key)
        assert_int_equal(PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(out);
}

static inline void tls_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;

    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    assert_non_null(e);
    X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
}

/* NAME.pem and NAME.key, signed by the root. @param names "DNS:a.test,IP:127.0.0.1". @param from, to seconds from now. */
static inline void
tls_make(struct tls_files *f, const char *name, const char *names, long from, long to)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    char file[64];

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), ++f->serial);
    X509_gmtime_adj(X509_getm_notBefore(cert), from);
    X509_gmtime_adj(X509_getm_notAfter(cert), to);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509 *issuer = f->ca ? f->ca : cert;
    X509_set_issuer_name(cert, X509_get_subject_name(issuer));
    tls_extension(cert, issuer, NID_basic_constraints, f->ca ? "CA:FALSE" : "critical,CA:TRUE");
    if (names)
        tls_extension(cert, issuer, NID_subject_alt_name, names);
    assert_true(X509_sign(cert, f->ca ? f->ca_key : key, EVP_sha256()) > 0);
    snprintf(file, sizeof(file), "%s.pem", name);
    tls_write(f, file, cert, NULL);
    snprintf(file, sizeof(file), "%s.key", name);
    tls_write(f, file, NULL, key);
    if (f->ca) {
        X509_free(cert);
        EVP_PKEY_free(key);
    } else {
        f->ca = cert;
        f->ca_key = key;
    }
}

/* With ca.pem in it. */
static inline void tls_files_init(struct tls_files *f)
{
    const char *tmp = getenv("TMPDIR");

    *f = (struct tls_files){.serial = 0};
    snprintf(f->dir, sizeof(f->dir), "%.40s/weir-tls-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(f->dir));
    tls_make(f, "ca", NULL, -TLS_DAY, 365L * TLS_DAY);
}

/* @param names of what tls_make() made. */
static inline void tls_files_fini(struct tls_files *f, const char *const *names)
{
    static const char *const ca[] = {"ca", NULL};

    for (int i = 0; i < 2; i++)
        for (const char *const *n = i ? names : ca; *n; n++)
            for (int k = 0; k < 2; k++) {
                char file[64];
                snprintf(file, sizeof(file), "%s.%s", *n, k ? "key" : "pem");
                unlink(tls_path(f, file));
            }
    rmdir(f->dir);
    X509_free(f->ca);
    EVP_PKEY_free(f->ca_key);
}

#endif /* WEIR_TESTS_TLS_FILES_H */
