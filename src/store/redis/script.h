/* script.h -- the steps that one command cannot do, as Lua: one file each in lua/, and common.lua in
 * front of every one of them. */
#ifndef IMPEL_STORE_REDIS_SCRIPT_H
#define IMPEL_STORE_REDIS_SCRIPT_H

#include "base/base.h"

enum script_name {
    SCRIPT_ACK,
    SCRIPT_BEAT,
    SCRIPT_CLAIM,
    SCRIPT_CREATE,
    SCRIPT_DROP,
    SCRIPT_INFO,
    SCRIPT_LEAVE,
    SCRIPT_LOOK,
    SCRIPT_PARK,
    SCRIPT_PENDING,
    SCRIPT_READ,
    SCRIPT_RELEASE,
    SCRIPT_RENEW,
    SCRIPT_REPLAY,
    SCRIPT_SETTLE,
    SCRIPT_TAKE,
    SCRIPT_TRIM,
    SCRIPT_COUNT,
};

struct script {
    const char *name;
    struct impel_bytes text;
};
extern const struct script script_table[SCRIPT_COUNT];

enum {
    SHA1_TEXT_SIZE = 41,
};
/* The name under which a server keeps a script: the SHA-1 of its text, in hexadecimal. */
void sha1_text(struct impel_bytes bytes, char text[SHA1_TEXT_SIZE]);

#endif /* IMPEL_STORE_REDIS_SCRIPT_H */
