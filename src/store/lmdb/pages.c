/* pages.c -- walks all trees of an LMDB 0.9 file (64-bit) page by page and looks at every bound
 * that LMDB itself takes for granted.
 *
 *     page   pgno 8 | pad 2 | flags 2 | lower 2, upper 2 (or: overflow page count 4) | ...
 *     meta   page header | magic 4 | version 4 | address 8 | map size 8 | db free | db main |
 *            last page 8 | txn 8                                       (pages 0 and 1)
 *     db     page size 4 | flags 2 | depth 2 | branch, leaf, overflow pages, entries, root: 8 each
 *     node   lo 2 | hi 2 | flags 2 | key size 2 | key | data           offsets in an array of 2-byte
 *            branch: child page = lo + hi << 16 + flags << 32;  leaf: data size = lo + hi << 16
 *
 * Rows lie packed from `upper` to the page's end, each of an even size.
 *
 * In the list of free pages a value is a count and that many page numbers. Every page has one use:
 * a bitmap finds those that have two. */
#include "store/lmdb/pages.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PAGE_HEAD = 16,
    NODE_HEAD = 8,
    DB_SIZE = 48,
    META_DBS_AT = PAGE_HEAD + 24,
    META_LAST_AT = META_DBS_AT + 2 * DB_SIZE,
    META_TXN_AT = META_LAST_AT + 8,
    META_SIZE = META_TXN_AT + 8,
    FLAG_BRANCH = 1,
    FLAG_LEAF = 2,
    FLAG_OVERFLOW = 4,
    NODE_BIG = 1,
    NODE_DB = 2,
    NODE_DUPLICATES = 4,
    DB_INTEGER_KEYS = 8, /* the list of free pages has them, the others no flag */
    DB_FLAGS = 0x7f,     /* above are the environment's */
    DEPTH_MAX = 32,      /* LMDB's own limit */
    LMDB_FILE_VERSION = 1,
};
#define LMDB_FILE_MAGIC 0xBEEFC0DEU
#define NO_PAGE         UINT64_MAX

struct file {
    const uint8_t *map;
    uint64_t size;
    uint64_t page_size;
    uint64_t pages; /* by its own account */
    uint8_t *used;  /* a bit a page */
    struct impel_error *err;
};

struct tree {
    struct file *file;
    const char *name;
    uint64_t branch_pages, leaf_pages, overflow_pages, entries, root;
    uint16_t flags, depth;
    uint64_t seen_branch, seen_leaf, seen_overflow, seen_entries;
    bool lists_free, is_main;
    bool is_free_list; /* what it lists, not its own pages */
};

static uint16_t get16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static int bad(const struct tree *tree, uint64_t page, const char *what)
{
    return error_set(tree->file->err, IMPEL_ERR_CORRUPT, "page %llu of '%s': %s",
                     (unsigned long long)page, tree->name, what);
}

/* Takes `count` pages from `page` on for this tree. */
static int use_pages(const struct tree *tree, uint64_t page, uint64_t count)
{
    struct file *file = tree->file;

    if (page < 2 || page >= file->pages || count > file->pages - page) {
        return bad(tree, page, "there is no such page");
    }
    if (!tree->is_free_list && (page + count) * file->page_size > file->size) {
        return bad(tree, page, "the file is cut off before it");
    }
    for (uint64_t i = page; i < page + count; i++) {
        if ((file->used[i / 8] >> (i % 8) & 1) != 0) {
            return bad(tree, i, "it has two uses");
        }
        file->used[i / 8] |= (uint8_t)(1U << (i % 8));
    }
    return IMPEL_OK;
}

static int tree_walk(struct tree *tree, uint64_t page, unsigned level);

static void tree_init(struct tree *tree, struct file *file, const uint8_t *db, const char *name)
{
    *tree = (struct tree){
        .file = file,
        .name = name,
        .flags = get16(db + 4),
        .depth = get16(db + 6),
        .branch_pages = get64(db + 8),
        .leaf_pages = get64(db + 16),
        .overflow_pages = get64(db + 24),
        .entries = get64(db + 32),
        .root = get64(db + 40),
    };
}

static int tree_check(struct tree *tree)
{
    int rc = IMPEL_OK;

    if ((tree->flags & DB_FLAGS) != (tree->lists_free ? DB_INTEGER_KEYS : 0)) {
        return bad(tree, tree->root, "its flags are not those it was made with");
    }
    if (tree->root != NO_PAGE) {
        rc = tree_walk(tree, tree->root, 1);
    }
    if (rc >= 0 &&
        (tree->seen_branch != tree->branch_pages || tree->seen_leaf != tree->leaf_pages ||
         tree->seen_overflow != tree->overflow_pages || tree->seen_entries != tree->entries)) {
        return bad(tree, tree->root, "the tree has other numbers of pages or rows than it counts");
    }
    return rc;
}

/* The pages listed as free in one value. */
static int free_pages_check(struct tree *tree, const uint8_t *data, uint64_t size)
{
    uint64_t count = size < 8 ? UINT64_MAX : get64(data);

    if (count > size / 8 - 1) {
        return bad(tree, 0, "a list of free pages is longer than its row");
    }
    /* The list's own pages are used like any other's, what it lists is checked as free: a file may
     * end before its last free page. */
    struct tree listed = *tree;
    listed.is_free_list = true;
    int rc = IMPEL_OK;
    for (uint64_t i = 1; rc >= 0 && i <= count; i++) {
        rc = use_pages(&listed, get64(data + i * 8), 1);
    }
    return rc;
}

static int big_value(struct tree *tree, uint64_t page, uint64_t size, const uint8_t **data)
{
    struct file *file = tree->file;
    uint64_t count = (PAGE_HEAD - 1 + size) / file->page_size + 1;
    int rc = use_pages(tree, page, count);

    if (rc < 0) {
        return rc;
    }
    const uint8_t *at = file->map + page * file->page_size;
    if (get64(at) != page || (get16(at + 10) & FLAG_OVERFLOW) == 0 || get32(at + 12) != count) {
        return bad(tree, page, "it should be the first of a large value");
    }
    tree->seen_overflow += count;
    *data = at + PAGE_HEAD;
    return IMPEL_OK;
}

/* `taken` becomes how much of the page it takes. */
static int
leaf_node(struct tree *tree, uint64_t page, const uint8_t *node, uint64_t room, uint64_t *taken)
{
    uint64_t key_size = get16(node + 6);
    uint64_t size = get16(node) | (uint64_t)get16(node + 2) << 16;
    uint16_t flags = get16(node + 4);
    const uint8_t *data = node + NODE_HEAD + key_size;
    int rc = IMPEL_OK;

    uint64_t stored = (flags & NODE_BIG) != 0 ? 8 : size;
    if (NODE_HEAD + key_size + stored > room) {
        return bad(tree, page, "a row reaches beyond it");
    }
    *taken = NODE_HEAD + key_size + stored;
    if ((flags & NODE_DUPLICATES) != 0 || ((flags & NODE_DB) != 0 && !tree->is_main)) {
        return bad(tree, page, "a row of a kind that does not belong there");
    }
    tree->seen_entries++;
    if ((flags & NODE_BIG) != 0) {
        rc = big_value(tree, get64(data), size, &data);
    }
    if (rc >= 0 && (flags & NODE_DB) != 0) {
        if (size != DB_SIZE) {
            return bad(tree, page, "a database's row is damaged");
        }
        char name[16];
        struct tree inner;
        (void)bytes_quote((struct impel_bytes){node + NODE_HEAD, key_size}, name, sizeof(name));
        tree_init(&inner, tree->file, data, name);
        rc = tree_check(&inner);
    }
    return rc >= 0 && strcmp(tree->name, "free pages") == 0 ? free_pages_check(tree, data, size)
                                                            : rc;
}

/* Keys ascend within a page; the first key of a branch is not looked at. */
static int key_order(const struct tree *tree, const uint8_t *left, const uint8_t *right)
{
    uint16_t left_size = get16(left + 6);
    uint16_t right_size = get16(right + 6);

    if ((tree->flags & DB_INTEGER_KEYS) != 0) {
        if (left_size != 8 || right_size != 8) {
            return 1;
        }
        uint64_t a = get64(left + NODE_HEAD);
        uint64_t b = get64(right + NODE_HEAD);
        return a < b ? -1 : a > b;
    }
    return bytes_compare((struct impel_bytes){left + NODE_HEAD, left_size},
                         (struct impel_bytes){right + NODE_HEAD, right_size});
}

static int page_nodes(struct tree *tree, uint64_t page, bool branch, unsigned level)
{
    struct file *file = tree->file;
    const uint8_t *at = file->map + page * file->page_size;
    uint16_t lower = get16(at + 12), upper = get16(at + 14);
    const uint8_t *previous = NULL;
    uint64_t filled = 0;
    int rc = IMPEL_OK;

    for (uint16_t slot = PAGE_HEAD; rc >= 0 && slot < lower; slot = (uint16_t)(slot + 2)) {
        uint16_t offset = get16(at + slot);
        if (offset < upper || (uint64_t)offset + NODE_HEAD > file->page_size || offset % 2 != 0) {
            return bad(tree, page, "a row lies outside of it");
        }
        const uint8_t *node = at + offset;
        uint64_t room = file->page_size - offset;
        if (NODE_HEAD + (uint64_t)get16(node + 6) > room) {
            return bad(tree, page, "a key reaches beyond it");
        }
        if (previous != NULL && !(branch && slot == PAGE_HEAD + 2) &&
            key_order(tree, previous, node) >= 0) {
            return bad(tree, page, "its keys are not in order");
        }
        previous = node;
        uint64_t child =
            get16(node) | (uint64_t)get16(node + 2) << 16 | (uint64_t)get16(node + 4) << 32;
        uint64_t taken = NODE_HEAD + (uint64_t)get16(node + 6);
        rc = branch ? tree_walk(tree, child, level + 1) : leaf_node(tree, page, node, room, &taken);
        filled += taken + taken % 2;
    }
    return rc >= 0 && filled != file->page_size - upper ? bad(tree, page, "its rows overlap") : rc;
}

static int tree_walk(struct tree *tree, uint64_t page, unsigned level)
{
    struct file *file = tree->file;
    int rc = use_pages(tree, page, 1);

    if (rc < 0) {
        return rc;
    }
    const uint8_t *at = file->map + page * file->page_size;
    uint16_t flags = get16(at + 10);
    uint16_t lower = get16(at + 12);
    uint16_t upper = get16(at + 14);
    bool branch = (flags & FLAG_BRANCH) != 0;
    if (get64(at) != page || (flags != FLAG_BRANCH && flags != FLAG_LEAF)) {
        return bad(tree, page, "it is of another kind");
    }
    if (lower < PAGE_HEAD || lower % 2 != 0 || lower > upper || upper > file->page_size ||
        (branch && lower < PAGE_HEAD + 4)) {
        return bad(tree, page, "its bounds are wrong");
    }
    if (level > DEPTH_MAX || level > tree->depth || (branch == (level == tree->depth))) {
        return bad(tree, page, "the tree is deeper or flatter than it says");
    }
    tree->seen_branch += branch;
    tree->seen_leaf += !branch;
    return page_nodes(tree, page, branch, level);
}

/* ---- the file ---- */

static bool meta_valid(const struct file *file, const uint8_t *meta)
{
    return get32(meta + PAGE_HEAD) == LMDB_FILE_MAGIC &&
           get32(meta + PAGE_HEAD + 4) == LMDB_FILE_VERSION &&
           get32(meta + META_DBS_AT) == file->page_size;
}

static bool page_size_valid(uint64_t size)
{
    return size >= 512 && size <= 65536 && (size & (size - 1)) == 0;
}

/* The meta page that LMDB would take: the newer one. NULL if a meta page is not one. */
static const uint8_t *meta_pick(struct file *file)
{
    const uint8_t *first = file->map;

    ASSERT(first != NULL);
    file->page_size = get32(first + META_DBS_AT);
    if (!page_size_valid(file->page_size) || file->size < 2 * file->page_size) {
        return NULL;
    }
    const uint8_t *second = first + file->page_size;
    if (!meta_valid(file, first) || !meta_valid(file, second)) {
        return NULL;
    }
    const uint8_t *meta = get64(second + META_TXN_AT) > get64(first + META_TXN_AT) ? second : first;
    file->pages = get64(meta + META_LAST_AT) + 1;
    return file->pages < 2 || file->pages > UINT64_MAX / file->page_size ? NULL : meta;
}

static int file_map(const char *path, struct file *file)
{
    struct stat st;
    void *map = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return errno == ENOENT ? IMPEL_ERR_NOT_FOUND
                               : error_set(file->err, IMPEL_ERR_IO, "%s", strerror(errno));
    }
    int rc = IMPEL_OK;
    if (fstat(fd, &st) < 0) {
        rc = error_set(file->err, IMPEL_ERR_IO, "%s", strerror(errno));
    } else if (st.st_size == 0) {
        rc = IMPEL_ERR_NOT_FOUND;
    } else if (st.st_size < META_SIZE) {
        rc = error_set(file->err, IMPEL_ERR_CORRUPT, "only %lld bytes are left of it",
                       (long long)st.st_size);
    } else {
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            rc = error_set(file->err, errno == ENOMEM ? IMPEL_ERR_NOMEM : IMPEL_ERR_IO, "%s",
                           strerror(errno));
        }
    }
    close(fd);
    if (rc >= 0) {
        file->map = map;
        file->size = (uint64_t)st.st_size;
    }
    return rc;
}

static int file_check(struct file *file)
{
    struct tree tree;
    const uint8_t *meta = meta_pick(file);

    if (meta == NULL) {
        return error_set(file->err, IMPEL_ERR_CORRUPT, "its first pages are damaged");
    }
    if (file->pages / 8 > file->size) {
        return error_set(file->err, IMPEL_ERR_CORRUPT,
                         "it counts far more pages than it has: cut off or damaged");
    }
    file->used = calloc(file->pages / 8 + 1, 1);
    if (file->used == NULL) {
        return error_set(file->err, IMPEL_ERR_NOMEM, "out of memory");
    }
    tree_init(&tree, file, meta + META_DBS_AT, "free pages");
    tree.lists_free = true;
    int rc = tree_check(&tree);
    if (rc >= 0) {
        tree_init(&tree, file, meta + META_DBS_AT + DB_SIZE, "databases");
        tree.is_main = true;
        rc = tree_check(&tree);
    }
    free(file->used);
    return rc;
}

int pages_check(const char *path, struct impel_error *err)
{
    struct file file = {.err = err};
    int rc = file_map(path, &file);

    if (rc < 0) {
        return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
    }
    rc = file_check(&file);
    munmap((void *)file.map, file.size);
    return rc;
}

int pages_size(const char *path, uint64_t *is, uint64_t *should_be, struct impel_error *err)
{
    struct file file = {.err = err};
    int rc = file_map(path, &file);

    *is = *should_be = 0;
    if (rc < 0) {
        return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
    }
    *is = file.size;
    if (meta_pick(&file) == NULL) {
        rc = error_set(err, IMPEL_ERR_CORRUPT, "its first pages are damaged");
    } else {
        *should_be = file.pages * file.page_size;
    }
    munmap((void *)file.map, file.size);
    return rc;
}

/* ---- the meta pages ---- */

bool pages_metas(int fd, struct pages_metas *out)
{
    uint8_t pages[2][META_SIZE];
    struct file file = {0};

    if (pread(fd, pages[0], META_SIZE, 0) != META_SIZE) {
        return false;
    }
    file.page_size = get32(pages[0] + META_DBS_AT);
    if (!page_size_valid(file.page_size) ||
        pread(fd, pages[1], META_SIZE, (off_t)file.page_size) != META_SIZE ||
        !meta_valid(&file, pages[0]) || !meta_valid(&file, pages[1])) {
        return false;
    }
    *out = (struct pages_metas){
        .page_size = file.page_size,
        .txns = {get64(pages[0] + META_TXN_AT), get64(pages[1] + META_TXN_AT)},
    };
    return true;
}

int pages_step_back(int fd, const struct pages_metas *metas)
{
    uint8_t meta[META_SIZE - PAGE_HEAD];
    int newer = metas->txns[1] > metas->txns[0];
    uint64_t number =
        metas->txns[newer] - 2; /* a transaction of this place, before the older one */
    off_t from = (newer == 0 ? (off_t)metas->page_size : 0) + PAGE_HEAD;
    off_t to = (newer == 1 ? (off_t)metas->page_size : 0) + PAGE_HEAD;

    if (pread(fd, meta, sizeof(meta), from) != (ssize_t)sizeof(meta)) {
        return errno;
    }
    memcpy(meta + META_TXN_AT - PAGE_HEAD, &number, sizeof(number));
    if (pwrite(fd, meta, sizeof(meta), to) != (ssize_t)sizeof(meta) || fsync(fd) < 0) {
        return errno;
    }
    return 0;
}
