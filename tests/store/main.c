/* main.c -- the conformance suite as a program: test-store-NAME NAME [FILTER]. */
#include "store/suite.h"

int main(int argc, char **argv)
{
    return suite_main(argc, argv);
}
