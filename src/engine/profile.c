/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers. Model: Llama-3.1-8B, bf16 unless said otherwise: 8.03e9 parameters, 32 layers, 8 KV heads of 128, so
 * 128 KiB of KV a token (64 KiB with an fp8 cache). Where a range is known, one value of it is chosen and said here.
 *
 * floor and b come from measured linear-operator tables (Vidur, MLSys 2024) and BLIS decode steps where they exist, and
 * else from the rule both support: 68 % of the memory bandwidth, 65 % of the peak FP16 rate. k is KV bytes at 80 % of the
 * bandwidth; c = 4.4 us is BLIS's per-request overhead. KV tokens = (0.9 x memory - weights - activations) / bytes a
 * token, activations 5.5 GiB (1.5 GiB on 24 GB cards and below).
 *
 *  h100  measured: decode step 6.9 ms (BLIS); slope 0.02045 (Vidur, 7B) x 1.08 for 8B.
 *  h200  scaled from h100 by 4.8 / 3.35 TB/s; memory 141e9 bytes gives the 800k tokens.
 *  a100  measured: Vidur and BLIS agree on the floor (10.5 / 10.6).
 *  l40s  floor measured (BLIS), b by rule. 48e9 bytes.
 *  l4    fp8 weights and cache. b: the rule gives 0.089, KubeAI's benchmark under load fits 0.14 to 0.15: 0.145 taken.
 *        KV 108k to 174k: 140k taken.
 *  3090  b: 0.13 to 0.30 by rule and mode of accumulation; Preble measured 0.12 on the same die: 0.15 taken.
 *        KV 5k to 37k: 28k, what the formula gives for 24e9 bytes.
 *  t4    int4 weights. By rule only, no published table: floor 20 to 25, 22.5 taken; KV 27k to 60k, 44k taken.
 *  cpu   invented, not measured: a slow server with 64 GiB, to have one that is an order of magnitude behind.
 */
#include "engine/profile.h"

#include "base/bug.h"
#include "base/num.h"

enum { KV_BF16 = 128 * 1024, KV_FP8 = 64 * 1024, LLAMA31_LEN = 131072 };

static const struct engine_profile profiles[] = {
    {"a100", "A100", 10.6, 0.0665, 0.080, 0.0044, 80 * GIB, KV_BF16, 421000, LLAMA31_LEN},
    {"h100", "H100", 6.9, 0.022, 0.049, 0.0044, 80 * GIB, KV_BF16, 421000, LLAMA31_LEN},
    {"h200", "H200", 5.0, 0.022, 0.034, 0.0044, UINT64_C(141000000000), KV_BF16, 800000,
     LLAMA31_LEN},
    {"l40s", "L40S", 23.5, 0.059, 0.19, 0.0044, UINT64_C(48000000000), KV_BF16, 160000,
     LLAMA31_LEN},
    {"l4", "L4", 36.0, 0.145, 0.27, 0.0044, UINT64_C(24000000000), KV_FP8, 140000, LLAMA31_LEN},
    {"3090", "3090", 22.0, 0.15, 0.18, 0.0044, UINT64_C(24000000000), KV_BF16, 28000, LLAMA31_LEN},
    {"t4", "T4", 22.5, 0.33, 0.51, 0.0044, UINT64_C(16000000000), KV_BF16, 44000, LLAMA31_LEN},
    {"cpu", "CPU", 120.0, 4.0, 2.0, 0.05, 64 * GIB, KV_BF16, 64000, LLAMA31_LEN},
};

const struct engine_profile *engine_profile_at(unsigned i)
{
    return i < ARRAY_LEN(profiles) ? &profiles[i] : NULL;
}

const struct engine_profile *engine_profile_find(struct slice name)
{
    for (size_t i = 0; i < ARRAY_LEN(profiles); i++)
        if (slice_eq_nocase(name, slice_str(profiles[i].name)))
            return &profiles[i];
    return NULL;
}
