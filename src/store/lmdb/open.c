/* open.c -- what is looked at before LMDB gets the file: where it lies, and whether it can be one. */
#include "store/lmdb/env.h"
#include "store/lmdb/pages.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Filesystems whose locks or shared mappings other machines take part in, or that emulate them. */
static const struct {
    unsigned long magic;
    const char *name;
} remote_filesystems[] = {
    {NFS_SUPER_MAGIC, "NFS"},     {0xff534d42UL, "CIFS"},   {0xfe534d42UL, "SMB"},
    {SMB_SUPER_MAGIC, "SMB"},     {V9FS_MAGIC, "9p"},       {FUSE_SUPER_MAGIC, "FUSE"},
    {CODA_SUPER_MAGIC, "Coda"},   {AFS_SUPER_MAGIC, "AFS"}, {CEPH_SUPER_MAGIC, "Ceph"},
    {0x0bd00bd0UL, "Lustre"},     {0x47504653UL, "GPFS"},   {0x01161970UL, "GFS2"},
    {OCFS2_SUPER_MAGIC, "OCFS2"},
};

enum {
    LINKS_MAX = 40, /* as many as the kernel follows */
};

/* The folder of a path, in `text` of PATH_MAX bytes. */
static const char *folder_of(const char *path, char *text)
{
    (void)snprintf(text, PATH_MAX, "%s", path);
    return dirname(text);
}

int env_follow(const char *path, char *text, struct impel_error *err)
{
    char link[PATH_MAX], folder[PATH_MAX];
    size_t size = strlen(path);

    for (int hops = 0; hops < LINKS_MAX && size < PATH_MAX; hops++) {
        memmove(text, path, size + 1);
        ssize_t n = readlink(text, link, sizeof(link) - 1);
        if (n < 0) {
            return IMPEL_OK; /* no link, or nothing yet */
        }
        link[n] = '\0';
        path = link;
        size = (size_t)n;
        if (link[0] != '/') {
            int full = snprintf(text, PATH_MAX, "%s/%s", folder_of(text, folder), link);
            path = text;
            size = full < PATH_MAX ? (size_t)full : PATH_MAX;
        }
    }
    int code = size < PATH_MAX ? ELOOP : ENAMETOOLONG;
    return error_set(err, IMPEL_ERR_IO, "%s: %s", path, strerror(code));
}

int env_check_folder(const char *path, struct impel_error *err)
{
    char text[PATH_MAX];
    struct statfs fs;
    struct stat st;
    const char *folder = folder_of(path, text);

    if (stat(folder, &st) < 0) {
        int code = errno;
        return error_set(err,
                         code == ENOENT || code == EACCES ? lmdb_status_of(code) : IMPEL_ERR_IO,
                         "%s: its folder: %s", path, strerror(code));
    }
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "%s is a folder: name a file in it, such as %s/impel.db", path, path);
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return error_set(err, IMPEL_ERR_INVALID, "%s is not a regular file", path);
    }
    if (access(folder, W_OK | X_OK) < 0 || (access(path, F_OK) == 0 && access(path, W_OK) < 0)) {
        return error_set(err, IMPEL_ERR_READ_ONLY,
                         "%s: the file and its folder must be writable, also for reading: %s", path,
                         strerror(errno));
    }
    if (statfs(folder, &fs) < 0) {
        return IMPEL_OK; /* nothing is known against it */
    }
    for (size_t i = 0; i < ARRAY_SIZE(remote_filesystems); i++) {
        if (((unsigned long)fs.f_type & 0xffffffffUL) == remote_filesystems[i].magic) {
            return error_set(err, IMPEL_ERR_UNSUPPORTED,
                             "%s lies on %s, where its locks cannot be relied on: keep it on a "
                             "local disk and share it with `impel serve`",
                             path, remote_filesystems[i].name);
        }
    }
    return IMPEL_OK;
}

/* Offsets in the first page of an LMDB 0.9 file, on a 64-bit machine: page header, magic, version.
 */
enum {
    LMDB_MAGIC_AT = 16,
    LMDB_VERSION_AT = 20,
    LMDB_HEAD_SIZE = 24,
    LMDB_MAGIC = (int)0xBEEFC0DE,
    LMDB_VERSION = 1,
};

struct head {
    bool there;
    uint32_t magic, version;
};

/* What the meta page at `at` says it is; IMPEL_ERR_IO if it cannot be read. */
static int head_read(int fd, off_t at, struct head *head)
{
    uint8_t bytes[LMDB_HEAD_SIZE];
    ssize_t got = pread(fd, bytes, sizeof(bytes), at);

    *head = (struct head){.there = got > 0};
    if (got == (ssize_t)sizeof(bytes)) {
        memcpy(&head->magic, bytes + LMDB_MAGIC_AT, sizeof(head->magic));
        memcpy(&head->version, bytes + LMDB_VERSION_AT, sizeof(head->version));
    }
    return got < 0 ? IMPEL_ERR_IO : IMPEL_OK;
}

static bool head_is_right(const struct head *head)
{
    return head->magic == (uint32_t)LMDB_MAGIC && head->version == LMDB_VERSION;
}

static int check_heads(const char *path,
                       const struct head *first,
                       const struct head *second,
                       struct impel_error *err)
{
    if (head_is_right(first)) {
        return IMPEL_OK;
    }
    if (head_is_right(second)) {
        return error_set(err, IMPEL_ERR_CORRUPT,
                         "%s is damaged: its first page was overwritten, its second is that of a "
                         "store: see `impel check`, and restore it from a copy",
                         path);
    }
    if (first->magic != (uint32_t)LMDB_MAGIC) {
        return error_set(err, IMPEL_ERR_CORRUPT,
                         "%s is not an Impel store: its first bytes are something else's; name "
                         "another file",
                         path);
    }
    return error_set(err, IMPEL_ERR_VERSION,
                     "%s is an LMDB file of version %u, this program reads version %u", path,
                     first->version, LMDB_VERSION);
}

int env_check_file(const char *path, struct impel_error *err)
{
    long page_size = sysconf(_SC_PAGESIZE);
    struct head first = {0};
    struct head second = {0};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return errno == ENOENT ? IMPEL_OK
                               : error_set(err, IMPEL_ERR_IO, "%s: %s", path, strerror(errno));
    }
    int code =
        fstat(fd, &st) < 0 || head_read(fd, 0, &first) < 0 || head_read(fd, page_size, &second) < 0
            ? errno
            : 0;
    close(fd);
    if (code != 0) {
        return error_set(err, IMPEL_ERR_IO, "%s: %s", path, strerror(code));
    }
    if (!first.there) {
        return IMPEL_OK;
    }
    int rc = check_heads(path, &first, &second, err);
    if (rc >= 0 && st.st_size < 2 * page_size) {
        return error_set(err, IMPEL_ERR_CORRUPT,
                         "%s is cut off: only %lld bytes are left of it: see `impel check`", path,
                         (long long)st.st_size);
    }
    return rc;
}

int env_check_pages(const char *path, bool whole, struct impel_error *err)
{
    struct impel_error found = {0};
    uint64_t is = 0;
    uint64_t should_be = 0;
    int rc = pages_size(path, &is, &should_be, &found);

    /* A file may end before its last page, if that one is free; but it is rare. */
    if (rc >= 0 && (whole || is < should_be || is <= ENV_WALK_SIZE_MAX)) {
        rc = pages_check(path, &found);
    }
    if (rc == IMPEL_ERR_CORRUPT) {
        return error_set(err, rc,
                         "%s is damaged (%s): see `impel check`, and restore it from a copy", path,
                         found.text);
    }
    return rc < 0 ? error_set(err, rc, "%s: its pages: %s", path, found.text) : IMPEL_OK;
}

int env_sync_folder(const char *path)
{
    char text[PATH_MAX];
    int fd = open(folder_of(path, text), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return errno;
    }
    int code = fsync(fd) < 0 ? errno : 0;
    close(fd);
    return code;
}
