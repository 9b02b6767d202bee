/* certificate.h -- a certificate for a test's own servers, made anew each time. */
#ifndef CERTIFICATE_H
#define CERTIFICATE_H

#include <stdbool.h>

/* Makes FOLDER/cert, which is for localhost and its own authority, and FOLDER/key. False: there is no
 * openssl command here. */
bool certificate_make(const char *folder);

#endif /* CERTIFICATE_H */
