/* glob.c -- matching a text against a pattern.
 *
 * On a mismatch only the latest `*` is tried again one byte further: an earlier one could not do
 * better, so the work is at most the product of the two lengths, whatever the pattern. */
#include "base/glob.h"

/* Matches one byte against the element of the pattern at `*at`, and moves `*at` behind it. A set
 * without an end reaches to the end of the pattern. */
static bool set_matches(const uint8_t *pattern, size_t size, size_t *at, uint8_t byte)
{
    size_t i = *at + 1;
    bool negated = i < size && pattern[i] == '^';
    bool found = false;

    i += negated ? 1 : 0;
    while (i < size && pattern[i] != ']') {
        if (pattern[i] == '\\' && i + 1 < size) {
            found |= pattern[i + 1] == byte;
            i += 2;
        } else if (i + 2 < size && pattern[i + 1] == '-') {
            uint8_t low = pattern[i] < pattern[i + 2] ? pattern[i] : pattern[i + 2];
            uint8_t high = pattern[i] < pattern[i + 2] ? pattern[i + 2] : pattern[i];
            found |= byte >= low && byte <= high;
            i += 3;
        } else {
            found |= pattern[i] == byte;
            i++;
        }
    }
    *at = i < size ? i + 1 : size;
    return found != negated;
}

/* `all`: sets and escapes, too. */
static bool element_matches(const uint8_t *pattern, size_t size, size_t *at, uint8_t byte, bool all)
{
    switch (all || pattern[*at] == '?' ? pattern[*at] : '\0') {
    case '?':
        ++*at;
        return true;
    case '[':
        return set_matches(pattern, size, at, byte);
    case '\\':
        *at += *at + 1 < size ? 1 : 0;
        break;
    default:
        break;
    }
    return pattern[(*at)++] == byte;
}

static bool matches(struct impel_bytes pattern, struct impel_bytes text, bool all)
{
    const uint8_t *p = pattern.data;
    const uint8_t *t = text.data;
    size_t at = 0, here = 0;
    size_t star = SIZE_MAX, star_here = 0; /* behind the latest `*`, and where it ends so far */

    while (here < text.size || at < pattern.size) {
        size_t next = at;
        if (at < pattern.size && p[at] == '*') {
            star = ++at;
            star_here = here;
        } else if (at < pattern.size && here < text.size &&
                   element_matches(p, pattern.size, &next, t[here], all)) {
            at = next;
            here++;
        } else if (star != SIZE_MAX && star_here < text.size) {
            at = star;
            here = ++star_here;
        } else {
            return false;
        }
    }
    return true;
}

bool glob_matches(struct impel_bytes pattern, struct impel_bytes text)
{
    return matches(pattern, text, true);
}

bool glob_matches_text(struct impel_bytes pattern, struct impel_bytes text)
{
    return matches(pattern, text, false);
}

bool glob_is_pattern(struct impel_bytes text)
{
    const char *at = text.data;

    for (size_t i = 0; i < text.size; i++) {
        if (at[i] == '*' || at[i] == '?' || at[i] == '[') {
            return true;
        }
    }
    return false;
}
