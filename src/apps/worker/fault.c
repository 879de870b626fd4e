/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/worker/fault.h"

#include "base/num.h"

const char fault_help[] =
    "Faults (comma list for --fault, or the body of POST /fault on the worker; empty clears):\n"
    "  slow=3x         every step takes 3 times as long\n"
    "  hang            inference requests are taken and never answered\n"
    "  hang_after=N    streams stand still after N events\n"
    "  reset           inference requests are answered by a TCP reset\n"
    "  reset_after=N   streams are reset after N events\n"
    "  status=503:0.1  a tenth of the inference requests get this status (with Retry-After)\n"
    "  die_after=N     the process exits with status 1, undrained, when N requests were answered\n"
    "  metrics=garbage /metrics answers 200 with what is not Prometheus text\n"
    "  health=500      /health answers this status; health=hang: it is never answered\n"
    "  close_idle=5s   idle connections are closed after this time (--fault only)\n";

static bool count(struct slice value, uint32_t *out)
{
    uint64_t v;

    if (num_u64(value, &v) != 0 || v >= FAULT_NEVER)
        return false;
    *out = (uint32_t)v;
    return true;
}

static bool http_status(struct slice value, unsigned *out)
{
    uint64_t v;

    if (num_u64(value, &v) != 0 || v < 200 || v > 599)
        return false;
    *out = (unsigned)v;
    return true;
}

static bool status_and_share(struct slice value, struct fault *f)
{
    struct slice status = {NULL, 0};

    f->status_share = 1;
    if (!slice_cut(&value, ':', &status) || !http_status(status, &f->status))
        return false;
    return !value.p ||
           (num_f64(value, &f->status_share) == 0 && f->status_share >= 0 && f->status_share <= 1);
}

static bool factor(struct slice value, double *out)
{
    if (slice_ends(value, SLICE("x")))
        value.n--;
    return num_f64(value, out) == 0 && *out >= 0.001 && *out <= 1000000;
}

static bool item(struct slice name, struct slice value, struct fault *f)
{
    if (slice_eq(name, SLICE("slow")))
        return factor(value, &f->slow);
    if (slice_eq(name, SLICE("hang")))
        return !value.p && (f->hang = true);
    if (slice_eq(name, SLICE("reset")))
        return !value.p && (f->reset = true);
    if (slice_eq(name, SLICE("hang_after")))
        return count(value, &f->hang_after);
    if (slice_eq(name, SLICE("reset_after")))
        return count(value, &f->reset_after);
    if (slice_eq(name, SLICE("status")))
        return status_and_share(value, f);
    if (slice_eq(name, SLICE("die_after")))
        return count(value, &f->die_after);
    if (slice_eq(name, SLICE("metrics")))
        return slice_eq(value, SLICE("garbage")) && (f->metrics_garbage = true);
    if (slice_eq(name, SLICE("health")))
        return slice_eq(value, SLICE("hang")) ? (f->health_hang = true)
                                              : http_status(value, &f->health);
    if (slice_eq(name, SLICE("close_idle")))
        return num_duration(value, &f->close_idle_ns) == 0 && f->close_idle_ns > 0;
    return false;
}

int fault_parse(struct slice spec, struct fault *out, struct slice *bad)
{
    struct fault f = {
        .slow = 1, .hang_after = FAULT_NEVER, .reset_after = FAULT_NEVER, .die_after = FAULT_NEVER};
    struct slice piece;

    spec = slice_trim(spec);
    while (spec.n > 0 && slice_cut(&spec, ',', &piece)) {
        struct slice value = slice_trim(piece);
        struct slice name;
        if (!slice_cut(&value, '=', &name) || !item(name, value, &f)) {
            *bad = piece;
            return WEIR_E_INVALID;
        }
    }
    *out = f;
    return 0;
}
