/* fuzz_pages.c -- damaged pages of a store's file: each four bytes of the input change one of the file.
 * What the walk over the pages finds whole is opened as a store and checked row by row; LMDB trusts
 * what it maps, so the walk must have seen all that it could stumble over. */
#include "engine.h"
#include "store/lmdb/check.h"
#include "store/lmdb/pages.h"

#include <sys/stat.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const content[] = {
    "XADD s 1-1 a 1 b 2",  "XADD s 2-1 a 1 b 2", "XADD s 5-1 c 3",
    "XGROUP CREATE s g 0", "XADD u 9-9 x y",     "XREADGROUP GROUP g c COUNT 2 STREAMS s >",
    "SET t text",          "XDEL s 2-1",
};

static uint8_t *file;
static size_t file_size;
static char damaged[96];

static void remove_damaged(void)
{
    static const char *const ends[] = {"", "-lock", "-wake"};
    char text[112];

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        (void)snprintf(text, sizeof(text), "%s%s", damaged, ends[i]);
        (void)unlink(text);
    }
}

/* The file as it should be. */
static void load(void)
{
    struct stat st;

    (void)engine_open(content, ARRAY_SIZE(content));
    (void)snprintf(damaged, sizeof(damaged), "%s-damaged", engine_path());
    (void)atexit(remove_damaged);
    int fd = open(engine_path(), O_RDONLY | O_CLOEXEC);
    ASSERT(fd >= 0 && fstat(fd, &st) == 0);
    file_size = (size_t)st.st_size;
    file = malloc(file_size);
    ASSERT(file != NULL && pread(fd, file, file_size, 0) == (ssize_t)file_size);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct impel_error err = {0};
    size_t kept = file_size;

    if (file == NULL) {
        load();
        kept = file_size;
    }
    uint8_t *copy = malloc(file_size);
    ASSERT(copy != NULL);
    memcpy(copy, file, file_size);
    for (size_t i = 0; i + 4 <= size; i += 4) {
        size_t at = (data[i] | (size_t)data[i + 1] << 8 | (size_t)data[i + 2] << 16) % file_size;
        copy[at] = data[i + 3];
    }
    if (size % 4 == 1) { /* cut off as well */
        kept = file_size * data[size - 1] / 256;
    }
    int fd = open(damaged, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ASSERT(fd >= 0 && write(fd, copy, kept) == (ssize_t)kept);
    close(fd);
    free(copy);
    (void)lmdb_check(damaged, NULL, NULL, NULL, &err);
    return 0;
}
