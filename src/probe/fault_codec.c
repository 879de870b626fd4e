/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/fault_codec.h"

#include "probe/adapters_codec.h"

static const struct engine_fault_rule for_all[] = {
    {503, "oading", ENGINE_FAULT_LOADING}, /* "Loading model", "model is loading" */
    {429, NULL, ENGINE_FAULT_BUSY},
    {503, NULL, ENGINE_FAULT_BUSY},
    {0, NULL, ENGINE_FAULT_NONE},
};

bool engine_says(struct slice body, const char *words)
{
    size_t n = strlen(words);

    for (size_t i = 0; i + n <= body.n; i++)
        if (memcmp(body.p + i, words, n) == 0)
            return true;
    return false;
}

static const struct engine_fault_rule *
find(const struct engine_fault_rule *rules, unsigned status, struct slice body)
{
    for (const struct engine_fault_rule *r = rules; r && r->status; r++)
        if (r->status == status && (!r->says || engine_says(body, r->says)))
            return r;
    return NULL;
}

enum engine_fault
engine_fault_by(const struct engine_fault_rule *rules, unsigned status, struct slice body)
{
    if (status < 400)
        return ENGINE_FAULT_NONE;
    const struct engine_fault_rule *r = find(rules, status, body);
    if (!r)
        r = find(for_all, status, body);
    if (r)
        return r->means;
    return status < 500 ? ENGINE_FAULT_CLIENT : ENGINE_FAULT_BROKEN;
}

enum engine_fault engine_fault_of(enum engine_kind kind, unsigned status, struct slice body)
{
    return engine_fault_by(engine_adapter_of(kind)->faults, status, body);
}
