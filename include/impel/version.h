/* version.h -- which libimpel a program runs with, what a status means in words, and the mark of
 * what the library exports. */
#ifndef IMPEL_VERSION_H
#define IMPEL_VERSION_H

#ifndef IMPEL_API
#define IMPEL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* "MAJOR.MINOR.PATCH" of the library that is loaded. Never NULL, never freed. */
IMPEL_API const char *impel_version(void);

/* A sentence for an enum impel_status, or for any other number. Never NULL, never freed. */
IMPEL_API const char *impel_status_text(int status);

#ifdef __cplusplus
}
#endif

#endif /* IMPEL_VERSION_H */
