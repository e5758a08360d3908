/* Without a store, each call ends by its deadline. */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

static bool stop_at_once(void *context) {
    (*(int *)context)++;
    return true;
}

int main(void) {
    th_error error = th_error_init();
    th_options options = th_options_init();
    th_client *client = (th_client *)&error;
    th_queue *queue = (th_queue *)&error;
    char url[128];
    int calls = 0;
    struct sockaddr_in address = {0};
    socklen_t size = sizeof(address);

    /* A listener that never answers. */
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, size) == 0);
    CHECK(listen(listener, 16) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    snprintf(url, sizeof(url), "thunderhead://127.0.0.1:%d/?deadline=50ms", ntohs(address.sin_port));
    CHECK_ERROR(TH_NO_COORDINATOR, TH_NOT_DONE, th_client_open(url, NULL, &client, &error));
    CHECK(client == NULL);
    CHECK_ERROR(TH_NO_COORDINATOR, TH_NOT_DONE, th_queue_open(url, NULL, &queue, &error));
    CHECK(queue == NULL);

    /* The interrupt works from the beginning, also with a long deadline. */
    options.interrupt = stop_at_once;
    options.interrupt_context = &calls;
    options.interrupt_every_us = 1000;
    options.deadline_us = 3600000000u;
    CHECK_ERROR(TH_CANCELLED, TH_NOT_DONE, th_client_open(url, &options, &client, &error));
    CHECK(calls >= 1 && client == NULL);
    close(listener);

    /* No listener at all. */
    options = th_options_init();
    options.deadline_us = 20000;
    CHECK_ERROR(TH_NO_COORDINATOR, TH_NOT_DONE, th_client_open(url, &options, &client, &error));
    return 0;
}
