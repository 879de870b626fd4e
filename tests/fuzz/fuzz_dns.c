/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a name server sends is read within its bytes, and what comes out is terminated text. */
#include "fuzz.h"

#include "discovery/dns_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Of its own, so that a read past the end is seen. */
    char *copy = malloc(size ? size : 1);
    struct dns_reader r;
    struct dns_record one;
    int rc;

    FUZZ_CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    rc = dns_read(&r, slice_of(copy, size));
    for (size_t n = 0; rc == 0 && (rc = dns_read_next(&r, &one)) == 0; n++) {
        FUZZ_CHECK(n <= size);
        FUZZ_CHECK(memchr(one.name, '\0', sizeof(one.name)));
        FUZZ_CHECK(memchr(one.addr, '\0', sizeof(one.addr)));
        FUZZ_CHECK(memchr(one.target, '\0', sizeof(one.target)));
        FUZZ_CHECK((one.addr[0] != '\0') == (one.type != DNS_SRV));
    }
    FUZZ_CHECK(rc == WEIR_E_NOTFOUND || rc == WEIR_E_PROTO);
    free(copy);
    return 0;
}
