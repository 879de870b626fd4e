/* SPDX-License-Identifier: Apache-2.0 */
/* Replay: call the fuzz target once for every file of the directory given, in any build and without a fuzzer. */
#include <dirent.h>

#include "fuzz.h"

enum { FILE_MAX = 1 << 20 };

static int replay(const char *dir, const char *name)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = n > 0 && (size_t)n < sizeof(path) ? fopen(path, "rb") : NULL;

    if (!f) {
        fprintf(stderr, "%s/%s: cannot be opened\n", dir, name);
        return -1;
    }
    uint8_t *all = malloc(FILE_MAX);
    size_t size = all ? fread(all, 1, FILE_MAX, f) : 0;
    /* A block of exactly this size, so that a read past its end is seen. */
    uint8_t *data = malloc(size ? size : 1);
    bool ok = all && data && !ferror(f) && size < FILE_MAX;
    fclose(f);
    if (ok) {
        memcpy(data, all, size);
        fprintf(stderr, "%s (%zu bytes)\n", name, size);
        LLVMFuzzerTestOneInput(data, size);
    } else {
        fprintf(stderr, "%s: cannot be read, or too long\n", path);
    }
    free(data);
    free(all);
    return ok ? 0 : -1;
}

int main(int argc, char **argv)
{
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    unsigned files = 0;
    int rc = 0;

    if (!dir) {
        fprintf(stderr, "usage: %s CORPUS_DIR\n", argv[0]);
        return 2;
    }
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (e->d_name[0] == '.')
            continue;
        files++;
        if (replay(argv[1], e->d_name))
            rc = 1;
    }
    closedir(dir);
    printf("%u files replayed\n", files);
    return files ? rc : 1;
}
