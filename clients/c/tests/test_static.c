/* The static library works too, and needs no more than the package says. */
#include "check.h"

int main(void) {
    th_error error = th_error_init();
    th_client *client = NULL;
    CHECK_ERROR(TH_BAD_URL, TH_NOT_DONE, th_client_open("nonsense", NULL, &client, &error));
    CHECK(strcmp(th_library_version(), TH_VERSION) == 0);
    return 0;
}
