/* SPDX-License-Identifier: Apache-2.0 */
/* A kubeconfig: whatever it is, it is read or refused with words, and nothing is left behind. */
#include "fuzz.h"

#include "confio/kubeconfig.h"
#include "heap_mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct conf_errors errors;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct kubeconfig k;

    memset(&errors, 0, sizeof(errors));
    int rc = confio_kubeconfig_text(&mem, "/etc/k/config", slice_of((const char *)data, size), &k,
                                    &errors);
    if (rc == 0) {
        FUZZ_CHECK(k.server.n > 7 && k.server.p[k.server.n] == '\0');
        FUZZ_CHECK(!(k.cert.p || k.cert_pem.p) == !(k.key.p || k.key_pem.p));
    } else {
        FUZZ_CHECK(rc != WEIR_E_INVALID || errors.n > 0);
    }
    confio_kubeconfig_fini(&k);
    FUZZ_CHECK(heap.live == 0);
    return 0;
}
