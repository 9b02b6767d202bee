/* main.c -- the program's entry: finds the subcommand and runs it. */
#include "impel/version.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "version") == 0) {
        printf("impel %s\n", impel_version());
        return 0;
    }
    fprintf(stderr, "usage: impel version\n");
    return 2;
}
