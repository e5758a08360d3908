/* Checks for tests: a failed one says its place and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include "thunderhead.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);            \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

/* Checks the status of a call that takes `&error` as its last argument. */
#define CHECK_STATUS(expected, call)                                                             \
    do {                                                                                         \
        const th_status status_ = (call);                                                        \
        if (status_ != (expected)) {                                                             \
            fprintf(stderr, "%s:%d: %s returned %s (%d), not %s: %s\n", __FILE__, __LINE__,      \
                    #call, th_status_name(status_), status_, #expected, error.text);             \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define CHECK_OK(call) CHECK_STATUS(TH_OK, call)

/* Checks the status of a call, and that its error says the same. */
#define CHECK_ERROR(expected, expected_outcome, call)                                            \
    do {                                                                                         \
        CHECK_STATUS(expected, call);                                                            \
        CHECK(error.code == (expected) && error.outcome == (expected_outcome));                  \
        CHECK(error.size == sizeof(error) && strlen(error.text) > 10);                           \
    } while (0)

static inline int is_text(th_slice slice, const char *text) {
    return slice.size == strlen(text) && memcmp(slice.data, text, slice.size) == 0;
}

#endif
