/* Counts to a number, one by one: counter [URL] [COUNT] [TABLE]
 *
 * Kill the server while it runs, and start it again: no increment is lost, and none is done twice.
 * The client repeats an increment under one identity, so the server does it once. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <thunderhead.h>

int main(int count, char **arguments) {
    const char *url = count > 1 ? arguments[1] : "thunderhead://localhost";
    const int64_t total = count > 2 ? strtoll(arguments[2], NULL, 10) : 10000;
    const char *name = count > 3 ? arguments[3] : "counters";
    th_error error = th_error_init();
    th_options options = th_options_init();
    th_client *client;
    th_status status;
    uint64_t table;
    int64_t start = 0, sum = 0, at;

    /* Long enough for a server to be started again. */
    options.deadline_us = 60 * 1000000;
    if (th_client_open(url, &options, &client, &error) != TH_OK) goto failed;
    status = th_table_open(client, name, NULL, &table, &error);
    if (status == TH_NO_SUCH_TABLE) status = th_table_create(client, name, 1, NULL, &table, &error);
    if (status != TH_OK) goto failed;

    if (th_increment(client, table, th_text("visits"), 0, NULL, &start, NULL, &error) != TH_OK) {
        goto failed;
    }
    printf("from %" PRId64 "\n", start);
    fflush(stdout);
    for (at = 1; at <= total; at++) {
        if (th_increment(client, table, th_text("visits"), 1, NULL, &sum, NULL, &error) != TH_OK) {
            goto failed;
        }
        if (sum != start + at) {
            fprintf(stderr, "after %" PRId64 " increments the sum is %" PRId64 "\n", at, sum);
            return 1;
        }
        if (at % 1000 == 0) {
            printf("%" PRId64 "\n", sum);
            fflush(stdout);
        }
    }
    printf("%" PRId64 " increments, each done once\n", total);
    th_client_free(client);
    return 0;

failed:
    /* The only way to lose count is an unknown outcome, and the error says so. */
    fprintf(stderr, "%s: %s\n", error.outcome == TH_UNKNOWN ? "unknown" : "not done", error.text);
    return 1;
}
