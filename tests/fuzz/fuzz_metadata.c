/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata of any registry, one key=value per line: what is read of it is bounded, and unknown is not 0. */
#include "fuzz.h"

#include "fleet/metadata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of((const char *)data, size);
    struct kv kv[ENDPOINT_KV_MAX];
    struct fleet_metadata m;
    struct slice line;
    uint32_t n = 0;

    while (n < ENDPOINT_KV_MAX && slice_cut(&text, '\n', &line)) {
        size_t at = slice_find(line, '=');
        kv[n].key = slice_of(line.p, at);
        kv[n].value = at < line.n ? slice_from(line, at + 1) : slice_of(line.p, 0);
        (void)fleet_metadata_fast(kv[n].key);
        (void)fleet_engine_named(kv[n].value);
        (void)fleet_task_named(kv[n++].value);
    }
    fleet_metadata_read(kv, n, &m);
    FUZZ_CHECK((m.sample.known >> (SAMPLE_STATE + 1)) == 0);
    FUZZ_CHECK(!sample_has(&m.sample, SAMPLE_GPU_UTIL) || m.sample.gpu_util_bp <= 10000);
    FUZZ_CHECK(sample_has(&m.sample, SAMPLE_MEMORY_FREE) || m.sample.memory_free_bytes == 0);
    FUZZ_CHECK(sample_has(&m.sample, SAMPLE_RUNNING) || m.sample.running == 0);
    return 0;
}
