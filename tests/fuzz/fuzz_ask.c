/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the emulated worker: what is taken is bounded, what is refused says why. */
#include "fuzz.h"

#include "apps/worker/ask.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct slice models[] = {SLICE("m"), SLICE("llama-3-8b")};
    const struct slice body = slice_of((const char *)data, size);
    struct ask_error error;
    struct ask a;

    for (int kind = ASK_CHAT; kind <= ASK_EMBEDDING; kind++) {
        memset(&error, 0, sizeof(error));
        int rc = ask_parse((enum ask_kind)kind, body, models, 2, &a, &error);
        if (rc == 0) {
            FUZZ_CHECK(a.model.p == models[0].p || a.model.p == models[1].p);
            FUZZ_CHECK(a.n_inputs <= ASK_INPUTS_MAX && a.dimensions <= ASK_DIMENSIONS_MAX);
            ask_fini(&a);
        } else if (rc == WEIR_E_INVALID) {
            FUZZ_CHECK(error.status >= 400 && error.type && error.message[0]);
        }
    }
    return 0;
}
