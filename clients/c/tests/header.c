/* Compiles the header alone. */
#include "thunderhead.h"

th_error header_error(void);

th_error header_error(void) {
    return th_error_init();
}
