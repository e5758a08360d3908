/* The memory of the program stays flat over many operations. The argument is how many. */
#include "check.h"
#include "server.h"

#include <poll.h>
#include <unistd.h>

/* How many operations ended because they were cancelled. */
static size_t cancelled;

static long resident_kb(void) {
    long pages = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%ld %ld", &pages, &resident) == 2);
    fclose(statm);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Does about `count` operations through every function that hands over memory. */
static void work(th_client *client, th_queue *queue, const char *url, uint64_t table,
                 size_t count) {
    enum { MANY = 100 };
    th_error error = th_error_init();
    th_value value = th_value_init();
    th_object object = th_object_init();
    static char keys[MANY][16];
    static th_slice slices[MANY];
    static th_op ops[MANY];
    struct pollfd polled = {-1, POLLIN, 0};
    size_t at, each, done, round = 0;
    uint64_t first = 0;
    CHECK_OK(th_queue_fd(queue, &polled.fd, &error));
    for (at = 0; at < MANY; at++) {
        snprintf(keys[at], sizeof(keys[at]), "key%zu", at);
        slices[at] = th_text(keys[at]);
        ops[at] = th_op_init(at % 2 ? TH_OP_PUT : TH_OP_GET, table, slices[at]);
        ops[at].tag = at;
        ops[at].value = at % 2 ? th_text("a value") : th_bytes(NULL, 0);
    }
    for (done = 0; done < count; round++) {
        th_batch *batch = NULL;
        th_client *other = NULL;
        for (at = 0; at < MANY; at++, done += 3) {
            CHECK_OK(th_put(client, table, slices[at], slices[at], NULL, NULL, &error));
            CHECK_OK(th_get(client, table, slices[at], NULL, &value, &error));
            CHECK_STATUS(TH_CONDITION_FAILED,
                         th_put_if(client, table, slices[at], slices[at], th_absent(), NULL, NULL,
                                   &error));
        }
        CHECK_OK(th_get_many(client, table, slices, MANY, NULL, &batch, &error));
        CHECK_OK(th_batch_free(batch));
        CHECK_OK(th_submit(queue, ops, MANY, &first, &error));
        /* Some end before they are sent, others too late, and each has one result. */
        for (at = round % 7; at < MANY; at += 7) CHECK_OK(th_cancel(queue, first + at, &error));
        for (at = 0; at < MANY;) {
            while (poll(&polled, 1, -1) < 0) {
            }
            CHECK_OK(th_take(queue, 64, &batch, &error));
            if (batch) {
                at += batch->count;
                for (each = 0; each < batch->count; each++) {
                    const th_status status = batch->results[each]->status;
                    if (status == TH_OK) continue;
                    CHECK(batch->results[each]->tag % 7 == round % 7);
                    CHECK(status == TH_CANCELLED || status == TH_OUTCOME_UNKNOWN);
                    cancelled += status == TH_CANCELLED;
                }
            }
            CHECK_OK(th_batch_free(batch));
        }
        done += 2 * MANY;
        if (round % 20 == 0) {
            th_scan *scan = NULL;
            th_tables *tables = NULL;
            CHECK_OK(th_scan_open(client, table, NULL, &scan, &error));
            for (at = 0; at < MANY / 2; at++) CHECK_OK(th_scan_next(scan, &object, &error));
            CHECK_OK(th_scan_free(scan));
            CHECK_OK(th_table_list(client, NULL, &tables, &error));
            CHECK_OK(th_tables_free(tables));
            CHECK_OK(th_client_open(url, NULL, &other, &error));
            CHECK_OK(th_client_free(other));
        }
    }
}

int main(int count, char **arguments) {
    th_error error = th_error_init();
    th_client *client = NULL;
    th_queue *queue = NULL;
    uint64_t table = 0;
    const size_t total = count > 1 ? strtoull(arguments[1], NULL, 10) : 1000;
    long before, after;
    test_server server = server_start(NULL, NULL);
    CHECK_OK(th_client_open(server.url, NULL, &client, &error));
    CHECK_OK(th_queue_open(server.url, NULL, &queue, &error));
    CHECK_OK(th_table_create(client, "objects", 1, NULL, &table, &error));
    /* The first part fills caches, buffers and the allocator's reserves. */
    work(client, queue, server.url, table, total / 5);
    before = resident_kb();
    work(client, queue, server.url, table, total - total / 5);
    after = resident_kb();
    printf("%zu operations, %zu of them cancelled: %ld KiB before, %ld KiB after\n", total,
           cancelled, before, after);
    /* A leak of ten bytes for each operation would be more than this. A short run is for valgrind,
     * whose own memory grows. */
    CHECK(total < 100000 || cancelled > 0);
    CHECK(total < 100000 || after - before < 2048 + (long)(total / 200));
    CHECK_OK(th_queue_free(queue));
    CHECK_OK(th_client_free(client));
    server_stop(&server);
    return 0;
}
