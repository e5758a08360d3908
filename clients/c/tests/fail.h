/* The end of a test program because of a fault. */
#ifndef FAIL_H
#define FAIL_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Writes the reason, and ends the program with status 1. Other threads may still use the client, so
 * nothing is cleaned up. */
static inline void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    _Exit(1);
}

#endif
