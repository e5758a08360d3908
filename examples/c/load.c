/* Loads many objects through a queue, and shows the progress: load [URL] [COUNT]
 *
 * A thousand operations are in flight at any time. The program sleeps until some have ended. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <thunderhead.h>

enum { IN_FLIGHT = 1000 };

static void fail(const th_error *error) {
    fprintf(stderr, "%s\n", error->text);
    exit(1);
}

int main(int count, char **arguments) {
    const char *url = count > 1 ? arguments[1] : "thunderhead://localhost";
    const size_t total = count > 2 ? strtoull(arguments[2], NULL, 10) : 100000;
    th_error error = th_error_init();
    th_client *client;
    th_queue *queue;
    th_status status;
    uint64_t table;
    size_t submitted = 0, done = 0, shown = 0;
    struct pollfd polled = {-1, POLLIN, 0};

    if (th_client_open(url, NULL, &client, &error) != TH_OK) fail(&error);
    status = th_table_open(client, "loaded", NULL, &table, &error);
    if (status == TH_NO_SUCH_TABLE) {
        status = th_table_create(client, "loaded", 1, NULL, &table, &error);
    }
    if (status != TH_OK) fail(&error);
    th_client_free(client);

    if (th_queue_open(url, NULL, &queue, &error) != TH_OK) fail(&error);
    if (th_queue_fd(queue, &polled.fd, &error) != TH_OK) fail(&error);
    while (done < total) {
        static th_op ops[IN_FLIGHT];
        static char keys[IN_FLIGHT][32];
        size_t fresh = 0, at;
        th_batch *batch;
        for (; submitted < total && submitted - done < IN_FLIGHT; submitted++, fresh++) {
            snprintf(keys[fresh], sizeof(keys[fresh]), "object %zu", submitted);
            ops[fresh] = th_op_init(TH_OP_PUT, table, th_text(keys[fresh]));
            ops[fresh].value = th_text("a value");
        }
        /* The library copies the keys, so they can be used again at once. */
        if (fresh > 0 && th_submit(queue, ops, fresh, NULL, &error) != TH_OK) fail(&error);
        if (poll(&polled, 1, -1) < 0) continue;
        if (th_take(queue, IN_FLIGHT, &batch, &error) != TH_OK) fail(&error);
        for (at = 0; batch && at < batch->count; at++) {
            if (batch->results[at]->status != TH_OK) {
                fprintf(stderr, "%s\n", batch->results[at]->text);
                return 1;
            }
        }
        done += batch ? batch->count : 0;
        th_batch_free(batch);
        if (done - shown >= total / 10 || done == total) {
            shown = done;
            printf("%zu of %zu\n", done, total);
        }
    }
    if (th_queue_close(queue, &error) != TH_OK) fail(&error);
    th_queue_free(queue);
    return 0;
}
