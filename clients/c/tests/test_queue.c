/* The asynchronous client. */
#include "check.h"
#include "server.h"

#include <poll.h>
#include <pthread.h>

/* Waits until there are results, and takes at most so many. */
static th_batch *take(th_queue *queue, size_t count_max) {
    th_error error = th_error_init();
    th_batch *batch = NULL;
    struct pollfd polled = {-1, POLLIN, 0};
    CHECK_OK(th_queue_fd(queue, &polled.fd, &error));
    while (!batch) {
        while (poll(&polled, 1, -1) < 0) {
        }
        CHECK_OK(th_take(queue, count_max, &batch, &error));
    }
    CHECK(batch->count >= 1 && batch->count <= count_max);
    return batch;
}

static th_result take_one(th_queue *queue) {
    th_batch *batch = take(queue, 1);
    const th_result result = *batch->results[0];
    th_batch_free(batch);
    return result;
}

static void operations_have_results(th_queue *queue, uint64_t table) {
    enum { COUNT = 1000 };
    th_error error = th_error_init();
    static th_op ops[COUNT];
    static int seen[COUNT];
    static char keys[COUNT][16];
    th_batch *batch = NULL;
    uint64_t first = 0, second = 0;
    size_t at, taken;

    CHECK_OK(th_take(queue, 10, &batch, &error));
    CHECK(batch == NULL);
    for (at = 0; at < COUNT; at++) {
        snprintf(keys[at], sizeof(keys[at]), "key%zu", at);
        ops[at] = th_op_init(TH_OP_PUT, table, th_text(keys[at]));
        ops[at].value = th_text(keys[at]);
        ops[at].tag = at;
    }
    CHECK_OK(th_submit(queue, ops, COUNT, &first, &error));
    for (taken = 0; taken < COUNT; taken += batch->count, th_batch_free(batch)) {
        batch = take(queue, 100);
        for (at = 0; at < batch->count; at++) {
            const th_result *result = batch->results[at];
            CHECK(result->status == TH_OK && result->version > 0 && result->tag < COUNT);
            seen[result->tag]++;
        }
    }
    for (at = 0; at < COUNT; at++) {
        CHECK(seen[at] == 1);
        ops[at].kind = TH_OP_GET;
        ops[at].value = th_bytes(NULL, 0);
    }
    CHECK_OK(th_submit(queue, ops, COUNT, &second, &error));
    CHECK(second == first + COUNT);
    for (taken = 0; taken < COUNT; taken += batch->count, th_batch_free(batch)) {
        batch = take(queue, SIZE_MAX);
        for (at = 0; at < batch->count; at++) {
            const th_result *result = batch->results[at];
            CHECK(result->exists && is_text(result->value, keys[result->tag]));
        }
    }
    CHECK_OK(th_submit(queue, NULL, 0, NULL, &error));
    CHECK_OK(th_cancel(queue, first, &error));
}

static void every_kind_of_operation_has_its_result(th_queue *queue, uint64_t table) {
    th_error error = th_error_init();
    th_op op = th_op_init(TH_OP_INCREMENT, table, th_text("count"));
    th_result result;
    uint64_t made;

    op.integer = 4;
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    CHECK(take_one(queue).integer == 4);
    op = th_op_init(TH_OP_INCREMENT_DOUBLE, table, th_text("real"));
    op.real = 0.25;
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    CHECK(take_one(queue).real == 0.25);
    op = th_op_init(TH_OP_PUT_INT64, table, th_text("n"));
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    CHECK(take_one(queue).version > 0);
    op = th_op_init(TH_OP_DELETE, table, th_text("n"));
    op.condition = th_present();
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    CHECK(take_one(queue).exists);
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    result = take_one(queue);
    CHECK(result.status == TH_CONDITION_FAILED && result.outcome == TH_NOT_DONE);

    op = th_op_init(TH_OP_TABLE_OPEN, 0, th_text("made"));
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    CHECK(take_one(queue).status == TH_NO_SUCH_TABLE);
    op.kind = TH_OP_TABLE_CREATE;
    op.integer = 1;
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    made = take_one(queue).table;
    CHECK(made > 0);
    op.kind = TH_OP_TABLE_OPEN;
    op.integer = 0;
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    CHECK(take_one(queue).table == made);
    op.kind = TH_OP_TABLE_DROP;
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    CHECK(take_one(queue).status == TH_OK);
    op.kind = TH_OP_TABLE_OPEN;
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    CHECK(take_one(queue).status == TH_NO_SUCH_TABLE);
}

struct worker {
    th_queue *queue;
    uint64_t table;
};

enum { THREADS = 4, EACH = 500 };

static void *submit_increments(void *context) {
    const struct worker *worker = context;
    th_error error = th_error_init();
    th_op op = th_op_init(TH_OP_INCREMENT, worker->table, th_text("shared"));
    int at;
    op.integer = 1;
    for (at = 0; at < EACH; at++) CHECK_OK(th_submit(worker->queue, &op, 1, NULL, &error));
    return NULL;
}

static void any_thread_may_submit(th_queue *queue, uint64_t table) {
    th_error error = th_error_init();
    pthread_t threads[THREADS];
    struct worker worker = {queue, table};
    th_op op = th_op_init(TH_OP_GET, table, th_text("shared"));
    th_batch *batch;
    int at;
    size_t taken;
    for (at = 0; at < THREADS; at++) {
        CHECK(pthread_create(&threads[at], NULL, submit_increments, &worker) == 0);
    }
    for (taken = 0; taken < THREADS * EACH; taken += batch->count, th_batch_free(batch)) {
        batch = take(queue, SIZE_MAX);
        CHECK(batch->failed == 0);
    }
    for (at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    batch = take(queue, 1);
    CHECK(th_int64_of(batch->results[0]->value) == THREADS * EACH);
    th_batch_free(batch);
}

static void a_closed_queue_keeps_its_results(const char *url, uint64_t table) {
    enum { COUNT = 200 };
    th_error error = th_error_init();
    th_queue *queue = NULL;
    th_op ops[COUNT];
    th_batch *batch = NULL;
    size_t at;
    CHECK_OK(th_queue_open(url, NULL, &queue, &error));
    for (at = 0; at < COUNT; at++) {
        ops[at] = th_op_init(TH_OP_INCREMENT, table, th_text("closing"));
        ops[at].integer = 1;
    }
    CHECK_OK(th_submit(queue, ops, COUNT, NULL, &error));
    CHECK_OK(th_queue_close(queue, &error));
    CHECK_OK(th_queue_close(queue, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_submit(queue, ops, 1, NULL, &error));
    CHECK_OK(th_cancel(queue, 0, &error));
    CHECK_OK(th_take(queue, COUNT + 1, &batch, &error));
    CHECK(batch && batch->count == COUNT && batch->failed == 0);
    CHECK_OK(th_batch_free(batch));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_take(queue, 1, &batch, &error));
    CHECK(batch == NULL);
    CHECK_OK(th_queue_free(queue));
}

/* Needs a store that does not answer any more. */
static void cancelled_operations_say_whether_they_were_done(th_queue *queue, test_server *server,
                                                            uint64_t table) {
    th_error error = th_error_init();
    th_op ops[2];
    th_result result;
    uint64_t first = 0;
    server_kill(server);
    ops[0] = th_op_init(TH_OP_PUT, table, th_text("k"));
    ops[0].value = th_text("v");
    ops[0].deadline_us = 3600000000u;
    ops[0].tag = 5;
    ops[1] = th_op_init(TH_OP_GET, table, th_text("k"));
    ops[1].tag = 6;
    CHECK_OK(th_submit(queue, ops, 1, &first, &error));
    CHECK_OK(th_cancel(queue, first, &error));
    result = take_one(queue);
    CHECK(result.tag == 5);
    CHECK((result.status == TH_CANCELLED && result.outcome == TH_NOT_DONE) ||
          (result.status == TH_OUTCOME_UNKNOWN && result.outcome == TH_UNKNOWN));
    /* A read is never done by halves. */
    ops[1].deadline_us = 3600000000u;
    CHECK_OK(th_submit(queue, &ops[1], 1, &first, &error));
    CHECK_OK(th_cancel(queue, first, &error));
    result = take_one(queue);
    CHECK(result.tag == 6 && result.status == TH_CANCELLED && result.outcome == TH_NOT_DONE);
    /* A short deadline ends an operation without help. */
    ops[1].deadline_us = 20000;
    CHECK_OK(th_submit(queue, &ops[1], 1, NULL, &error));
    result = take_one(queue);
    CHECK(result.status != TH_OK && result.outcome == TH_NOT_DONE);
    /* Closing waits for the deadline of an operation, and not for longer. */
    CHECK_OK(th_submit(queue, &ops[1], 1, NULL, &error));
    CHECK_OK(th_queue_close(queue, &error));
    CHECK(take_one(queue).status != TH_OK);
}

int main(void) {
    th_error error = th_error_init();
    th_queue *queue = NULL;
    th_client *client = NULL;
    uint64_t table = 0;
    test_server server = server_start(NULL, NULL);
    CHECK_OK(th_client_open(server.url, NULL, &client, &error));
    CHECK_OK(th_table_create(client, "objects", 1, NULL, &table, &error));
    CHECK_OK(th_client_free(client));
    CHECK_OK(th_queue_open(server.url, NULL, &queue, &error));
    operations_have_results(queue, table);
    every_kind_of_operation_has_its_result(queue, table);
    any_thread_may_submit(queue, table);
    a_closed_queue_keeps_its_results(server.url, table);
    cancelled_operations_say_whether_they_were_done(queue, &server, table);
    CHECK_OK(th_queue_free(queue));
    return 0;
}
