/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/amd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/log.h"

enum { PATH_ROOM = 512, FILE_ROOM = 1024, CARDS_MAX = 256 };

/* The first FILE_ROOM - 1 bytes of a file, without white space at the end. @return false when it cannot be read. */
static bool read_file(const char *path, char out[FILE_ROOM])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, FILE_ROOM - 1);
    close(fd);
    if (n < 0)
        return false;
    while (n > 0 && (unsigned char)out[n - 1] <= ' ')
        n--;
    out[n] = 0;
    return true;
}

static bool read_text(const char *sysfs, unsigned card, const char *file, char out[FILE_ROOM])
{
    char path[PATH_ROOM];
    int n = snprintf(path, sizeof(path), "%s/class/drm/card%u/device/%s", sysfs, card, file);

    return n > 0 && (size_t)n < sizeof(path) && read_file(path, out);
}

static bool read_number(const char *sysfs, unsigned card, const char *file, uint64_t *out)
{
    char text[FILE_ROOM];

    return read_text(sysfs, card, file, text) && num_u64(slice_str(text), out) == 0;
}

static bool is_ours(const char *sysfs, unsigned card, char uevent[FILE_ROOM])
{
    char vendor[FILE_ROOM];

    return read_text(sysfs, card, "vendor", vendor) && strcmp(vendor, "0x1002") == 0 &&
           read_text(sysfs, card, "uevent", uevent) && strstr(uevent, "DRIVER=amdgpu") != NULL;
}

static void identify(const char *sysfs, struct amd_device *d, const char *uevent)
{
    char text[FILE_ROOM];
    const char *slot = strstr(uevent, "PCI_SLOT_NAME=");

    /* Boards without a number of their own are known by their place. */
    if (read_text(sysfs, d->card, "unique_id", text) && text[0] &&
        strspn(text, "0") != strlen(text))
        (void)snprintf(d->uuid, sizeof(d->uuid), "AMD-%.80s", text);
    else if (slot)
        (void)snprintf(d->uuid, sizeof(d->uuid), "AMD-%.*s", (int)strcspn(slot + 14, "\n"),
                       slot + 14);
    else
        (void)snprintf(d->uuid, sizeof(d->uuid), "AMD-card%u", d->card);
    if (read_text(sysfs, d->card, "product_name", text) && text[0])
        (void)snprintf(d->name, sizeof(d->name), "%.90s", text);
    else
        (void)snprintf(d->name, sizeof(d->name), "AMD GPU");
}

static int by_number(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a;
    unsigned y = *(const unsigned *)b;

    return (x > y) - (x < y);
}

/* The N of every cardN; connectors are called cardN-DP-1 and the like. */
static unsigned find_cards(const char *sysfs, unsigned cards[CARDS_MAX])
{
    char path[PATH_ROOM];
    struct dirent *e;
    unsigned n = 0;

    (void)snprintf(path, sizeof(path), "%s/class/drm", sysfs);
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    while (n < CARDS_MAX &&
           (e = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        struct slice name = slice_str(e->d_name);
        uint64_t card;
        if (slice_starts(name, SLICE("card")) && num_u64(slice_from(name, 4), &card) == 0 &&
            card < 10000)
            cards[n++] = (unsigned)card;
    }
    closedir(dir);
    qsort(cards, n, sizeof(*cards), by_number);
    return n;
}

unsigned amd_list(const char *sysfs, struct amd_device *out, unsigned max)
{
    unsigned cards[CARDS_MAX];
    unsigned n_cards = find_cards(sysfs, cards);
    char uevent[FILE_ROOM];
    unsigned n = 0;

    for (unsigned i = 0; i < n_cards && n < max; i++) {
        if (!is_ours(sysfs, cards[i], uevent))
            continue;
        out[n] = (struct amd_device){.card = cards[i]};
        identify(sysfs, &out[n++], uevent);
    }
    return n;
}

static bool read_share(const char *sysfs, unsigned card, const char *file, uint32_t *bp)
{
    uint64_t percent;

    if (!read_number(sysfs, card, file, &percent) || percent > 100)
        return false;
    *bp = (uint32_t)percent * 100;
    return true;
}

/* hwmon/hwmonN/power1_average or power1_input, in microwatts; N is not known beforehand. */
static bool read_power(const char *sysfs, unsigned card, uint32_t *mw)
{
    char path[PATH_ROOM];
    char file[PATH_ROOM];
    struct dirent *e;
    uint64_t uw;
    bool found = false;

    int n = snprintf(path, sizeof(path), "%s/class/drm/card%u/device/hwmon", sysfs, card);
    DIR *dir = n > 0 && (size_t)n < sizeof(path) ? opendir(path) : NULL;
    if (!dir)
        return false;
    while (!found && (e = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        if (!slice_starts(slice_str(e->d_name), SLICE("hwmon")))
            continue;
        (void)snprintf(file, sizeof(file), "hwmon/%.64s/power1_average", e->d_name);
        found = read_number(sysfs, card, file, &uw);
        (void)snprintf(file, sizeof(file), "hwmon/%.64s/power1_input", e->d_name);
        found = found || read_number(sysfs, card, file, &uw);
    }
    closedir(dir);
    if (!found || uw / 1000 > UINT32_MAX)
        return false;
    *mw = (uint32_t)(uw / 1000);
    return true;
}

void amd_read(const char *sysfs, struct amd_device *d, struct gpu_reading *out)
{
    char text[FILE_ROOM];
    uint64_t total;
    uint64_t used;

    memcpy(out->uuid, d->uuid, sizeof(out->uuid));
    memcpy(out->name, d->name, sizeof(out->name));
    if (!read_text(sysfs, d->card, "vendor", text)) {
        if (!d->lost)
            log_error("gpu", "%s is lost", d->uuid);
        d->lost = out->lost = true;
        return;
    }
    if (d->lost)
        log_info("gpu", "%s is back", d->uuid);
    d->lost = false;
    /* Reading a suspended card wakes it, which takes a second and its sleep. */
    if (read_text(sysfs, d->card, "power/runtime_status", text) && strncmp(text, "suspend", 7) == 0)
        return;
    if (read_number(sysfs, d->card, "mem_info_vram_total", &total) && total > 0 &&
        read_number(sysfs, d->card, "mem_info_vram_used", &used) && used <= total) {
        out->known |= GPU_MEMORY;
        out->memory_total_bytes = total;
        out->memory_free_bytes = total - used;
    }
    if (read_share(sysfs, d->card, "gpu_busy_percent", &out->util_bp))
        out->known |= GPU_UTIL;
    if (read_share(sysfs, d->card, "mem_busy_percent", &out->mem_busy_bp))
        out->known |= GPU_MEM_BUSY;
    if (read_power(sysfs, d->card, &out->power_mw))
        out->known |= GPU_POWER;
}
