/* certificate.c -- see certificate.h. */
#include "certificate.h"

#include <stdio.h>
#include <stdlib.h>

bool certificate_make(const char *folder)
{
    char command[512];

    (void)snprintf(
        command, sizeof(command),
        "cd '%s' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
        "-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -days 2 "
        "-keyout key -out cert >/dev/null 2>&1",
        folder);
    return system(command) == 0; // NOLINT(cert-env33-c)
}
