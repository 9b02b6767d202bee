/* replay.c -- runs a fuzz target over the files of a folder, one TAP line a file: what a fuzzer has
 * found once stays found, in the ordinary suite and under sanitizers, without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    static uint8_t data[1 << 20];
    FILE *file = fopen(path, "rb");

    if (file == NULL) {
        return -1;
    }
    size_t size = fread(data, 1, sizeof(data), file);
    fclose(file);
    /* A block of the file's own size, so that a look beyond its end is seen. */
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        return -1;
    }
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *folder = argc > 1 ? opendir(argv[1]) : NULL;
    const struct dirent *file;
    char path[4096];
    int count = 0, failed = 0;

    printf("TAP version 13\n");
    if (folder == NULL) {
        printf("Bail out! usage: replay FOLDER\n");
        return 1;
    }
    while ((file = readdir(folder)) != NULL) {
        if (file->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", argv[1], file->d_name);
        int rc = run_file(path);
        failed += rc < 0;
        printf("%sok %d - %s\n", rc < 0 ? "not " : "", ++count, file->d_name);
    }
    closedir(folder);
    printf("1..%d\n", count);
    return failed > 0 || count == 0;
}
