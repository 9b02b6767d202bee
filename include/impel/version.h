/* version.h -- which libimpel a program runs with, as against the one it was compiled with. */
#ifndef IMPEL_VERSION_H
#define IMPEL_VERSION_H

#ifndef IMPEL_API
#define IMPEL_API __attribute__((visibility("default")))
#endif

/* "MAJOR.MINOR.PATCH" of the library that is loaded. Never NULL, never freed. */
IMPEL_API const char *impel_version(void);

#endif /* IMPEL_VERSION_H */
