/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/agent/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bug.h"
#include "base/num.h"
#include "base/utf8.h"
#include "confio/secret.h"
#include "probe/engine.h"
#include "wire/url.h"

static const char usage[] =
    "usage: weir agent --registry URL --advertise HOST:PORT [option ...] [-- COMMAND...]\n"
    "Beside an inference server: registers it once it is healthy, and reports how it and its GPUs "
    "are.\n"
    "  --registry URL        http://HOST:PORT of Weir, or "
    "nacos://HOST:8848[/nacos][?namespace=&group=&cluster=];\n"
    "                        consul://HOST:8500, etcd://HOST:2379[/prefix/], all three also with "
    "+https "
    "(nacos+https://);\n"
    "                        logins from WEIR_NACOS_USERNAME and _PASSWORD, WEIR_ETCD_USERNAME and "
    "_PASSWORD\n"
    "  --advertise HOST:PORT address that others reach the server by\n"
    "  --service NAME        (default)\n"
    "  --id NAME             in the registry (the advertised address)\n"
    "  --engine KIND         auto vllm sglang tgi tei llamacpp triton ollama generic (auto)\n"
    "  --engine-url URL      where the agent reaches it (http://127.0.0.1:PORT, the advertised "
    "port)\n"
    "  --gpus LIST           all, none, or indexes and UUIDs: 0,1 (CUDA_VISIBLE_DEVICES if set, "
    "else all)\n"
    "  --interval D          between load reports (500ms; 2s to others than Weir)\n"
    "  --model ID            may be repeated (what the server lists)\n"
    "  --model-version V     of its models\n"
    "  --gpu-type NAME       (from the device: A100, H100, L4 ...)\n"
    "  --weight W            (1)\n"
    "  --max-concurrency N   most requests at once (unlimited)\n"
    "  --region, --zone, --cluster NAME\n"
    "  --metadata K=V, --label K=V   may be repeated\n"
    "  --ttl D               of the lease (5s); Weir takes 1s to 1h\n"
    "  --timeout D           longest wait for an answer of registry, server or exporter (2s)\n"
    "  --token env:NAME|file:PATH    registry token\n"
    "  --drain D             longest wait for the command's requests at the end (30s)\n"
    "  --kill-after D        from SIGTERM to SIGKILL of the command (10s)\n"
    "  --ca FILE             PEM: who signs the certificates of https registries, engines and "
    "exporters (what the\n"
    "                        system trusts); --cert, --key FILE: the agent's own, for those that "
    "ask\n"
    "  --dcgm URL            read the GPUs from a dcgm-exporter's page, like "
    "http://127.0.0.1:9400/metrics\n"
    "  --nvml PATH           NVIDIA's library (libnvidia-ml.so.1)\n"
    "  --devices             print what the GPUs tell, and end\n"
    "COMMAND is the server, started and ended by the agent; HUP, USR1 and USR2 are passed on, TERM "
    "and INT after the\n"
    "drain, and its exit status becomes the agent's.\n";

static int complain(const char *name, const char *value, const char *wanted)
{
    fprintf(stderr, "weir agent: %s: \"%s\" is not %s\n", name, value, wanted);
    return 2;
}

/* Without the value, which may be a secret: it would end up in logs. */
static int complain_unseen(const char *name, const char *wanted)
{
    fprintf(stderr, "weir agent: %s: not %s\n", name, wanted);
    return 2;
}

static int missing(const char *name, const char *what)
{
    fprintf(stderr, "weir agent: %s is needed: %s\n", name, what);
    return 2;
}

static int token(struct agent_options *o, const char *where)
{
    const char *wanted;
    int rc = confio_secret_named(where, o->token, sizeof(o->token), &wanted);

    if (rc == WEIR_E_INVALID)
        return complain_unseen("--token", wanted);
    return rc ? complain("--token", where, wanted) : -1;
}

static int duration(const char *name, const char *value, uint64_t least, uint64_t *out)
{
    if (num_duration(slice_str(value), out) != 0 || *out > 3600 * NS_PER_S)
        return complain(name, value, "a duration like 500ms, 10s or 2m, at most 1h");
    if (*out < least)
        return complain(name, value, least >= NS_PER_S ? "1s or more" : "10ms or more");
    return -1;
}

static int name(const char *option, const char *value, struct slice *out)
{
    size_t n = strlen(value);

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)value[i] < 0x21 || (unsigned char)value[i] == 0x7f)
            n = 0;
    if (n == 0 || n > 128 || !utf8_ok(value, n))
        return complain(option, value, "a name of 1 to 128 bytes of UTF-8 without spaces");
    *out = slice_str(value);
    return -1;
}

static int add_model(struct agent_options *o, const char *value)
{
    size_t n = strlen(value);

    if (n == 0 || n > ENDPOINT_TEXT_MAX || !utf8_ok(value, n))
        return complain("--model", value, "a name of 1 to 512 bytes of UTF-8");
    if (o->n_models == AGENT_MODELS_MAX)
        return complain("--model", value, "possible: there are 64 already");
    o->models[o->n_models++] = slice_str(value);
    return -1;
}

static int add_pair(const char *option, const char *text, struct kv *pairs, uint32_t *n)
{
    struct slice value = slice_str(text);
    struct slice key = {NULL, 0};

    if (!slice_cut(&value, '=', &key) || !value.p || key.n == 0 || !utf8_ok(text, strlen(text)))
        return complain(option, text, "KEY=VALUE in UTF-8");
    if (*n == AGENT_PAIRS_MAX)
        return complain(option, text, "possible: there are 64 already");
    pairs[(*n)++] = (struct kv){key, value};
    return -1;
}

static int advertise(struct agent_options *o, const char *value)
{
    int rc = name("--advertise", value, &o->advertise);

    if (rc >= 0)
        return rc;
    if (wire_authority_parse(o->advertise, &o->host, &o->port) != 0 || o->port == 0 ||
        o->host.n == 0)
        return complain("--advertise", value, "HOST:PORT");
    if (slice_eq(o->host, SLICE("0.0.0.0")) || slice_eq(o->host, SLICE("::")))
        return complain("--advertise", value, "an address that others can reach");
    return -1;
}

static int engine_url(struct agent_options *o, const char *value)
{
    struct url url;
    size_t n = strlen(value);

    if (strchr(value, '@'))
        return complain_unseen("--engine-url", "a URL without user name and password");
    while (n > 0 && value[n - 1] == '/')
        n--;
    if (wire_url_parse(slice_str(value), &url) != 0 || url.host.n == 0 || url.query.p ||
        n >= sizeof(o->url_room))
        return complain("--engine-url", value, "a URL like http://127.0.0.1:8000");
    memcpy(o->url_room, value, n);
    o->url_room[n] = 0;
    o->engine_url = o->url_room;
    return -1;
}

static int exporter_url(struct agent_options *o, const char *value)
{
    struct url url;

    if (strchr(value, '@'))
        return complain_unseen("--dcgm", "a URL without user name and password");
    if (wire_url_parse(slice_str(value), &url) != 0 || url.host.n == 0)
        return complain("--dcgm", value, "a URL like http://127.0.0.1:9400/metrics");
    o->dcgm = value;
    return -1;
}

/* A file that is not there would make every exchange fail, later and with other words. */
static int file(const char *option, const char *value, const char **out)
{
    if (access(value, R_OK) != 0)
        return complain(option, value, "a file that can be read");
    *out = value;
    return -1;
}

static int weight(struct agent_options *o, const char *value)
{
    uint64_t w;

    if (num_scaled(slice_str(value), WEIGHT_ONE, &w) != 0 || w > WEIGHT_MAX)
        return complain("--weight", value, "a number from 0 to 10000");
    o->weight = (uint32_t)w;
    return -1;
}

static int max_concurrency(struct agent_options *o, const char *value)
{
    uint64_t n;

    if (num_u64(slice_str(value), &n) != 0 || n < 1 || n > 1000000)
        return complain("--max-concurrency", value, "a whole number from 1 to 1000000");
    o->max_concurrency = (uint32_t)n;
    return -1;
}

static int gpus(struct agent_options *o, const char *value)
{
    o->gpus = value;
    o->gpus_by_cuda = false;
    return *value ? -1 : complain("--gpus", value, "all, none, or a list like 0,1");
}

static int engine(struct agent_options *o, const char *value)
{
    if (strcmp(value, "auto") == 0) {
        o->engine = ENGINE_UNKNOWN;
        return -1;
    }
    if (engine_kind_named(slice_str(value), &o->engine) == 0)
        return -1;
    return complain("--engine", value,
                    "auto vllm sglang tgi tei llamacpp triton ollama or generic");
}

enum kind {
    REGISTRY,
    ADVERTISE,
    SERVICE,
    ID,
    ENGINE,
    ENGINE_URL,
    GPUS,
    INTERVAL,
    MODEL,
    MODEL_VERSION,
    GPU_TYPE,
    WEIGHT,
    CONCURRENCY,
    REGION,
    ZONE,
    CLUSTER,
    METADATA,
    LABEL,
    TTL,
    TIMEOUT,
    TOKEN,
    DRAIN,
    KILL_AFTER,
    DCGM,
    CA,
    CERT,
    KEY,
    NVML,
    SYSFS
};

static const char *const names[] = {
    [REGISTRY] = "--registry",
    [ADVERTISE] = "--advertise",
    [SERVICE] = "--service",
    [ID] = "--id",
    [ENGINE] = "--engine",
    [ENGINE_URL] = "--engine-url",
    [GPUS] = "--gpus",
    [INTERVAL] = "--interval",
    [MODEL] = "--model",
    [MODEL_VERSION] = "--model-version",
    [GPU_TYPE] = "--gpu-type",
    [WEIGHT] = "--weight",
    [CONCURRENCY] = "--max-concurrency",
    [REGION] = "--region",
    [ZONE] = "--zone",
    [CLUSTER] = "--cluster",
    [METADATA] = "--metadata",
    [LABEL] = "--label",
    [TTL] = "--ttl",
    [TIMEOUT] = "--timeout",
    [TOKEN] = "--token",
    [DRAIN] = "--drain",
    [KILL_AFTER] = "--kill-after",
    [DCGM] = "--dcgm",
    [CA] = "--ca",
    [CERT] = "--cert",
    [KEY] = "--key",
    [NVML] = "--nvml",
    [SYSFS] = "--sysfs-root", /* for tests: the root of another sysfs */
};

static int apply_text(struct agent_options *o, enum kind kind, const char *value)
{
    const char *option = names[kind];

    switch ((int)kind) {
    case REGISTRY:
        o->registry = value;
        return strchr(value, '@')
                   ? complain_unseen(option, "a URL without user name and password; see --help")
                   : -1;
    case DCGM:
        return exporter_url(o, value);
    case CA:
        return file(option, value, &o->tls.ca);
    case CERT:
        return file(option, value, &o->tls.cert);
    case KEY:
        return file(option, value, &o->tls.key);
    case NVML:
        o->nvml = value;
        return -1;
    case SYSFS:
        o->sysfs = value;
        return -1;
    case SERVICE:
        return name(option, value, &o->service);
    case ID:
        return name(option, value, &o->id);
    case MODEL_VERSION:
        return name(option, value, &o->model_version);
    case GPU_TYPE:
        return name(option, value, &o->gpu_type);
    case REGION:
        return name(option, value, &o->region);
    case ZONE:
        return name(option, value, &o->zone);
    case CLUSTER:
        return name(option, value, &o->cluster);
    default:
        BUG_ON(1);
        return 2;
    }
}

static int apply(struct agent_options *o, enum kind kind, const char *value)
{
    const char *option = names[kind];

    switch ((int)kind) {
    case ADVERTISE:
        return advertise(o, value);
    case ENGINE:
        return engine(o, value);
    case ENGINE_URL:
        return engine_url(o, value);
    case GPUS:
        return gpus(o, value);
    case MODEL:
        return add_model(o, value);
    case WEIGHT:
        return weight(o, value);
    case CONCURRENCY:
        return max_concurrency(o, value);
    case METADATA:
        return add_pair(option, value, o->metadata, &o->n_metadata);
    case LABEL:
        return add_pair(option, value, o->labels, &o->n_labels);
    case INTERVAL:
        return duration(option, value, 10 * NS_PER_MS, &o->interval_ns);
    case TTL:
        return duration(option, value, NS_PER_S, &o->ttl_ns);
    case TIMEOUT:
        return duration(option, value, 10 * NS_PER_MS, &o->timeout_ns);
    case DRAIN:
        return duration(option, value, 0, &o->drain_ns);
    case KILL_AFTER:
        return duration(option, value, 0, &o->kill_ns);
    case TOKEN:
        return token(o, value);
    default:
        return apply_text(o, kind, value);
    }
}

/* One option at argv[*i]; moves *i past its value. */
static int take(int argc, char **argv, int *i, struct agent_options *o)
{
    const char *arg = argv[*i];

    for (unsigned k = 0; k < ARRAY_LEN(names); k++) {
        size_t n = strlen(names[k]);
        if (strncmp(arg, names[k], n) != 0 || (arg[n] != 0 && arg[n] != '='))
            continue;
        if (arg[n] == '=')
            return apply(o, (enum kind)k, arg + n + 1);
        if (*i + 1 >= argc || strcmp(argv[*i + 1], "--") == 0) {
            fprintf(stderr, "weir agent: %s needs a value\n", arg);
            return 2;
        }
        return apply(o, (enum kind)k, argv[++*i]);
    }
    fprintf(stderr, "weir agent: unknown argument %s; see --help\n", arg);
    return 2;
}

/* What follows from other options or the environment. */
static int complete(struct agent_options *o)
{
    const char *cuda =
        getenv("CUDA_VISIBLE_DEVICES"); /* NOLINT(concurrency-mt-unsafe): no thread yet */

    if (!o->gpus) {
        o->gpus_by_cuda = cuda != NULL;
        o->gpus = cuda ? cuda : "all";
    }
    if (!o->tls.cert != !o->tls.key)
        return missing(o->tls.cert ? "--key" : "--cert", "a certificate and its key go together");
    if (o->devices)
        return -1;
    if (!o->registry)
        return missing("--registry",
                       "http://HOST:PORT of Weir, or nacos://, consul:// or etcd://HOST:PORT");
    if (!o->advertise.p)
        return missing("--advertise", "HOST:PORT that others reach the server by");
    if (!o->id.p)
        o->id = o->advertise;
    if (!o->engine_url) {
        (void)snprintf(o->url_room, sizeof(o->url_room), "http://127.0.0.1:%u", o->port);
        o->engine_url = o->url_room;
    }
    bool etcd = slice_starts(slice_str(o->registry), SLICE("etcd"));
    if (o->interval_ns == 0)
        o->interval_ns =
            slice_starts(slice_str(o->registry), SLICE("http")) ? 500 * NS_PER_MS : 2 * NS_PER_S;
    const char *username = etcd ? "WEIR_ETCD_USERNAME" : "WEIR_NACOS_USERNAME";
    const char *password = etcd ? "WEIR_ETCD_PASSWORD" : "WEIR_NACOS_PASSWORD";
    o->username = getenv(username); /* NOLINT(concurrency-mt-unsafe) */
    o->password = getenv(password); /* NOLINT(concurrency-mt-unsafe) */
    return -1;
}

int agent_options_parse(int argc, char **argv, struct agent_options *o)
{
    *o = (struct agent_options){
        .service = SLICE("default"),
        .ttl_ns = 5 * NS_PER_S,
        .timeout_ns = 2 * NS_PER_S,
        .drain_ns = 30 * NS_PER_S,
        .kill_ns = 10 * NS_PER_S,
        .weight = WEIGHT_ONE,
    };
    for (int i = 1; i < argc; i++) {
        int rc = -1;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("%s", usage);
            return 0;
        }
        if (strcmp(argv[i], "--") == 0) {
            if (i + 1 == argc)
                return missing("a command", "after --");
            o->command = argv + i + 1;
            break;
        }
        if (strcmp(argv[i], "--devices") == 0)
            o->devices = true;
        else
            rc = take(argc, argv, &i, o);
        if (rc >= 0)
            return rc;
    }
    return complete(o);
}
