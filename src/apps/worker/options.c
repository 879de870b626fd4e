/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/worker/options.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/bug.h"
#include "base/num.h"
#include "confio/secret.h"

static const char usage[] =
    "usage: weir worker [option ...]\n"
    "An emulated GPU inference server: OpenAI API, vLLM metrics, step times of the chosen GPU.\n"
    "  --host ADDRESS        listen here (127.0.0.1)\n"
    "  --port P              0 = any free port (8000)\n"
    "  --gpu NAME            a100 h100 h200 l40s l4 3090 t4 cpu (a100)\n"
    "  --model ID            served model; may be repeated (llama-3-8b)\n"
    "  --model-version V     told to the registry\n"
    "  --time-scale X        run X times as fast as the real thing (1)\n"
    "  --kv-tokens N         KV cache capacity (of the GPU)\n"
    "  --max-num-seqs N      most requests in a batch (256)\n"
    "  --max-model-len N     longest prompt and output in tokens (131072, at most the KV "
    "capacity)\n"
    "  --load-time D         model loading takes so long, in emulated time; 503 until then (0s)\n"
    "  --seed N              of the texts and draws (1)\n"
    "  --early-headers       streams send their head at once, as vLLM does, not with the first "
    "token\n"
    "  --fault SPEC          see below\n"
    "  --drain D             longest wait for requests at the end, real time (10s)\n"
    "  --registry URL        register there, and report\n"
    "  --service NAME        under this service (default)\n"
    "  --report D            between load reports (500ms)\n"
    "  --ttl D               of the lease (5s); Weir takes 1s to 1h\n"
    "  --timeout D           longest wait for an answer of the registry (2s)\n"
    "  --token env:NAME|file:PATH  registry token\n"
    "  --advertise HOST:PORT address others reach it by (the bound one)\n"
    "  --name NAME           its id in the registry and in X-Weir-Worker (the advertised address)\n"
    "  --weight W            (1)\n"
    "  --metadata K=V        may be repeated\n"
    "While the model loads the port answers: /health and inference with 503.\n";

static int complain(const char *name, const char *value, const char *wanted)
{
    fprintf(stderr, "weir worker: %s: \"%s\" is not %s\n", name, value, wanted);
    return 2;
}

static int token(struct worker_options *o, const char *where)
{
    const char *wanted;
    int rc = confio_secret_named(where, o->token, sizeof(o->token), &wanted);

    /* What names no place may be the secret itself. */
    return rc ? complain("--token", rc == WEIR_E_INVALID ? "..." : where, wanted) : -1;
}

static int whole(const char *name, const char *value, uint64_t min, uint64_t max, uint64_t *out)
{
    if (num_u64(slice_str(value), out) != 0 || *out < min || *out > max) {
        fprintf(stderr, "weir worker: %s: \"%s\" is not a whole number from %llu to %llu\n", name,
                value, (unsigned long long)min, (unsigned long long)max);
        return 2;
    }
    return -1;
}

static int duration(const char *name, const char *value, uint64_t least, uint64_t *out)
{
    if (num_duration(slice_str(value), out) != 0 || *out > 3600 * NS_PER_S)
        return complain(name, value, "a duration like 500ms, 10s or 2m, at most 1h");
    if (*out < least)
        return complain(name, value, least > 10 * NS_PER_MS ? "100ms or more" : "10ms or more");
    return -1;
}

static int add_model(struct worker_options *o, const char *value)
{
    size_t n = strlen(value);

    if (n == 0 || n > ENDPOINT_TEXT_MAX)
        return complain("--model", value, "a name of 1 to 512 bytes");
    if (o->n_models == WORKER_MODELS_MAX)
        return complain("--model", value, "possible: there are 64 already");
    o->models[o->n_models++] = slice_str(value);
    return -1;
}

static int add_metadata(struct worker_options *o, const char *text)
{
    struct slice value = slice_str(text);
    struct slice name = {NULL, 0};

    if (!slice_cut(&value, '=', &name) || !value.p || name.n == 0)
        return complain("--metadata", text, "KEY=VALUE");
    if (o->n_metadata == WORKER_METADATA_MAX)
        return complain("--metadata", text, "possible: there are 64 already");
    o->metadata[o->n_metadata++] = (struct kv){name, value};
    return -1;
}

static int set_name(const char *option, const char *value, struct slice *out)
{
    size_t n = strlen(value);

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)value[i] < 0x21 || (unsigned char)value[i] > 0x7e)
            n = 0;
    if (n == 0 || n > 128)
        return complain(option, value, "1 to 128 printable ASCII characters without spaces");
    *out = slice_str(value);
    return -1;
}

static int set_fault(struct worker_options *o, const char *value)
{
    struct slice bad;

    o->fault_text = slice_str(value);
    if (fault_parse(o->fault_text, &o->fault, &bad) == 0)
        return -1;
    fprintf(stderr, "weir worker: --fault: \"%.*s\" is no fault; see --help\n", SLICE_ARG(bad));
    return 2;
}

static int set_scale(struct worker_options *o, const char *value)
{
    if (num_f64(slice_str(value), &o->time_scale) != 0 || o->time_scale < 0.001 ||
        o->time_scale > 10000)
        return complain("--time-scale", value, "a number from 0.001 to 10000");
    return -1;
}

static int set_weight(struct worker_options *o, const char *value)
{
    uint64_t weight;

    if (num_scaled(slice_str(value), WEIGHT_ONE, &weight) != 0 || weight > WEIGHT_MAX)
        return complain("--weight", value, "a number from 0 to 10000");
    o->weight = (uint32_t)weight;
    return -1;
}

static int set_gpu(struct worker_options *o, const char *value)
{
    o->gpu = engine_profile_find(slice_str(value));
    return o->gpu ? -1 : complain("--gpu", value, "one of a100 h100 h200 l40s l4 3090 t4 cpu");
}

enum kind {
    HOST,
    PORT,
    GPU,
    MODEL,
    MODEL_VERSION,
    SCALE,
    KV,
    SEQS,
    LEN,
    LOAD,
    SEED,
    FAULT,
    DRAIN,
    REGISTRY,
    SERVICE,
    REPORT,
    TTL,
    TIMEOUT,
    TOKEN,
    ADVERTISE,
    NAME,
    WEIGHT,
    METADATA
};

static const char *const names[] = {
    [HOST] = "--host",
    [PORT] = "--port",
    [GPU] = "--gpu",
    [MODEL] = "--model",
    [MODEL_VERSION] = "--model-version",
    [SCALE] = "--time-scale",
    [KV] = "--kv-tokens",
    [SEQS] = "--max-num-seqs",
    [LEN] = "--max-model-len",
    [LOAD] = "--load-time",
    [SEED] = "--seed",
    [FAULT] = "--fault",
    [DRAIN] = "--drain",
    [REGISTRY] = "--registry",
    [SERVICE] = "--service",
    [REPORT] = "--report",
    [TTL] = "--ttl",
    [TIMEOUT] = "--timeout",
    [TOKEN] = "--token",
    [ADVERTISE] = "--advertise",
    [NAME] = "--name",
    [WEIGHT] = "--weight",
    [METADATA] = "--metadata",
};

static int apply(struct worker_options *o, enum kind kind, const char *value)
{
    const char *name = names[kind];
    uint64_t n = 0;
    int rc = -1;

    switch (kind) {
    case HOST:
        o->host = value;
        return -1;
    case PORT:
        rc = whole(name, value, 0, 65535, &n);
        o->port = (uint16_t)n;
        return rc;
    case GPU:
        return set_gpu(o, value);
    case MODEL:
        return add_model(o, value);
    case MODEL_VERSION:
        return set_name(name, value, &o->model_version);
    case SCALE:
        return set_scale(o, value);
    case KV:
        return whole(name, value, 1, UINT32_MAX, &o->kv_tokens);
    case SEQS:
        rc = whole(name, value, 1, 1000000, &n);
        o->max_num_seqs = (uint32_t)n;
        return rc;
    case LEN:
        rc = whole(name, value, 1, UINT32_MAX, &n);
        o->max_model_len = (uint32_t)n;
        return rc;
    case LOAD:
        return duration(name, value, 0, &o->load_ns);
    case SEED:
        return whole(name, value, 0, UINT64_MAX, &o->seed);
    case FAULT:
        return set_fault(o, value);
    case DRAIN:
        return duration(name, value, 0, &o->drain_ns);
    case REGISTRY:
        o->registry = value;
        return -1;
    case SERVICE:
        o->service = value;
        return *value ? -1 : complain(name, value, "a name");
    case REPORT:
        return duration(name, value, 10 * NS_PER_MS, &o->report_ns);
    case TTL:
        return duration(name, value, 100 * NS_PER_MS, &o->ttl_ns);
    case TIMEOUT:
        return duration(name, value, 10 * NS_PER_MS, &o->timeout_ns);
    case TOKEN:
        return token(o, value);
    case ADVERTISE:
        return set_name(name, value, &o->advertise);
    case NAME:
        return set_name(name, value, &o->name);
    case WEIGHT:
        return set_weight(o, value);
    case METADATA:
        return add_metadata(o, value);
    }
    BUG_ON(1);
    return 2;
}

/* One option at argv[*i]; moves *i past its value. */
static int take(int argc, char **argv, int *i, struct worker_options *o)
{
    const char *arg = argv[*i];

    for (unsigned k = 0; k < ARRAY_LEN(names); k++) {
        size_t n = strlen(names[k]);
        if (strncmp(arg, names[k], n) != 0 || (arg[n] != 0 && arg[n] != '='))
            continue;
        if (arg[n] == '=')
            return apply(o, (enum kind)k, arg + n + 1);
        if (*i + 1 >= argc) {
            fprintf(stderr, "weir worker: %s needs a value\n", arg);
            return 2;
        }
        return apply(o, (enum kind)k, argv[++*i]);
    }
    fprintf(stderr, "weir worker: unknown argument %s; see --help\n", arg);
    return 2;
}

int worker_options_parse(int argc, char **argv, struct worker_options *o)
{
    struct slice bad;

    *o = (struct worker_options){
        .host = "127.0.0.1",
        .port = 8000,
        .gpu = engine_profile_at(0),
        .time_scale = 1,
        .service = "default",
        .report_ns = 500 * NS_PER_MS,
        .ttl_ns = 5 * NS_PER_S,
        .timeout_ns = 2 * NS_PER_S,
        .drain_ns = 10 * NS_PER_S,
        .max_num_seqs = 256,
        .weight = WEIGHT_ONE,
        .seed = 1,
    };
    BUG_ON(fault_parse(SLICE(""), &o->fault, &bad) != 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("%s%s", usage, fault_help);
            return 0;
        }
        if (strcmp(argv[i], "--early-headers") == 0) {
            o->early_headers = true;
            continue;
        }
        int rc = take(argc, argv, &i, o);
        if (rc >= 0)
            return rc;
    }
    if (o->n_models == 0)
        o->models[o->n_models++] = SLICE("llama-3-8b");
    return -1;
}
