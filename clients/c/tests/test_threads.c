/* A client that two threads use at once refuses the second one. A client may move between threads,
 * and an interrupt ends a call. */
#include "check.h"
#include "server.h"

#include <pthread.h>
#include <unistd.h>

/* The interrupt callback runs inside a call. It lets the other thread try, and then ends the call:
 * so the two calls overlap for certain, and no thread sleeps. */
struct meeting {
    th_client *client;
    uint64_t table;
    int calls;
};

static void *use_meanwhile(void *context) {
    struct meeting *meeting = context;
    th_error error = th_error_init();
    th_value value = th_value_init();
    const th_slice key = th_text("k");
    th_batch *batch = NULL;
    uint64_t table;
    CHECK_ERROR(TH_IN_USE, TH_NOT_DONE, th_get(meeting->client, 1, key, NULL, &value, &error));
    CHECK_ERROR(TH_IN_USE, TH_NOT_DONE,
                th_put(meeting->client, 1, key, key, NULL, NULL, &error));
    CHECK_ERROR(TH_IN_USE, TH_NOT_DONE,
                th_get_many(meeting->client, 1, &key, 1, NULL, &batch, &error));
    CHECK_ERROR(TH_IN_USE, TH_NOT_DONE,
                th_table_open(meeting->client, "t", NULL, &table, &error));
    CHECK_ERROR(TH_IN_USE, TH_NOT_DONE, th_client_close(meeting->client, &error));
    CHECK(th_client_free(meeting->client) == TH_IN_USE);
    return NULL;
}

static bool meet(void *context) {
    struct meeting *meeting = context;
    pthread_t thread;
    meeting->calls++;
    if (!meeting->client) return false;
    CHECK(pthread_create(&thread, NULL, use_meanwhile, meeting) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    /* The same holds for the thread of the call itself. */
    use_meanwhile(meeting);
    return true;
}

static void *use_afterwards(void *context) {
    struct meeting *meeting = context;
    th_error error = th_error_init();
    th_call call = th_deadline(1000);
    /* The store is gone, but the client is free: so its answer is another one. */
    th_value value = th_value_init();
    const th_status status =
        th_get(meeting->client, meeting->table, th_text("k"), &call, &value, &error);
    CHECK(status != TH_IN_USE && status != TH_OK && error.outcome == TH_NOT_DONE);
    return NULL;
}

int main(void) {
    th_error error = th_error_init();
    struct meeting meeting = {NULL, 0, 0};
    th_options options = th_options_init();
    th_value value = th_value_init();
    th_client *client = NULL;
    pthread_t thread;
    test_server server = server_start(NULL, NULL);
    options.interrupt = meet;
    options.interrupt_context = &meeting;
    options.interrupt_every_us = 1000;
    options.deadline_us = 3600000000u;
    CHECK_OK(th_client_open(server.url, &options, &client, &error));
    CHECK_OK(th_table_create(client, "objects", 1, NULL, &meeting.table, &error));
    CHECK_OK(th_put(client, meeting.table, th_text("k"), th_text("v"), NULL, NULL, &error));
    server_kill(&server);
    /* Without a store, a call with a deadline of an hour lasts until it is interrupted. */
    meeting.client = client;
    CHECK_ERROR(TH_CANCELLED, TH_NOT_DONE,
                th_get(client, meeting.table, th_text("k"), NULL, &value, &error));
    CHECK(meeting.calls > 0);
    meeting.client = client;
    const th_status status =
        th_put(client, meeting.table, th_text("k"), th_text("w"), NULL, NULL, &error);
    CHECK((status == TH_CANCELLED && error.outcome == TH_NOT_DONE) ||
          (status == TH_OUTCOME_UNKNOWN && error.outcome == TH_UNKNOWN));
    CHECK(pthread_create(&thread, NULL, use_afterwards, &meeting) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(th_client_free(client));
    return 0;
}
