/* The child of a fork gets typed errors from its parent's handles, and can open its own. */
#include "check.h"
#include "server.h"

#include <sys/wait.h>
#include <unistd.h>

static void child(th_client *client, th_queue *queue, th_scan *scan, const char *url,
                  uint64_t table) {
    th_error error = th_error_init();
    const th_slice key = th_text("k");
    th_value value = th_value_init();
    th_object object = th_object_init();
    th_op op = th_op_init(TH_OP_GET, table, key);
    th_batch *batch = NULL;
    th_client *own = NULL;
    uint64_t id;
    int fd;
#define FORKED(call) CHECK_ERROR(TH_FORKED, TH_NOT_DONE, call)
    FORKED(th_get(client, table, key, NULL, &value, &error));
    FORKED(th_put(client, table, key, key, NULL, NULL, &error));
    FORKED(th_increment(client, table, key, 1, NULL, NULL, NULL, &error));
    FORKED(th_get_many(client, table, &key, 1, NULL, &batch, &error));
    FORKED(th_table_open(client, "objects", NULL, &id, &error));
    FORKED(th_client_set_deadline(client, 1, &error));
    FORKED(th_scan_next(scan, &object, &error));
    FORKED(th_submit(queue, &op, 1, NULL, &error));
    FORKED(th_take(queue, 1, &batch, &error));
    FORKED(th_cancel(queue, 0, &error));
    FORKED(th_queue_fd(queue, &fd, &error));
    FORKED(th_client_close(client, &error));
    FORKED(th_queue_close(queue, &error));
#undef FORKED
    CHECK_OK(th_client_open(url, NULL, &own, &error));
    CHECK_OK(th_get(own, table, key, NULL, &value, &error));
    CHECK(is_text(value.value, "parent"));
    CHECK_OK(th_put(own, table, key, th_text("child"), NULL, NULL, &error));
    CHECK_OK(th_client_free(own));
    CHECK_OK(th_scan_free(scan));
    CHECK_OK(th_client_free(client));
    CHECK_OK(th_queue_free(queue));
}

int main(void) {
    th_error error = th_error_init();
    th_client *client = NULL;
    th_queue *queue = NULL;
    th_scan *scan = NULL;
    th_object object = th_object_init();
    th_value value = th_value_init();
    th_op op;
    th_batch *batch = NULL;
    uint64_t table = 0;
    int status = -1;
    pid_t forked;
    test_server server = server_start(NULL, NULL);
    CHECK_OK(th_client_open(server.url, NULL, &client, &error));
    CHECK_OK(th_queue_open(server.url, NULL, &queue, &error));
    CHECK_OK(th_table_create(client, "objects", 1, NULL, &table, &error));
    CHECK_OK(th_put(client, table, th_text("k"), th_text("parent"), NULL, NULL, &error));
    CHECK_OK(th_put(client, table, th_text("l"), th_text("parent"), NULL, NULL, &error));
    CHECK_OK(th_scan_open(client, table, NULL, &scan, &error));
    CHECK_OK(th_scan_next(scan, &object, &error));
    forked = fork();
    CHECK(forked >= 0);
    if (forked == 0) {
        child(client, queue, scan, server.url, table);
        _exit(0);
    }
    while (waitpid(forked, &status, 0) < 0) {
    }
    CHECK(status == 0);
    /* The parent's handles still work. */
    CHECK_OK(th_scan_next(scan, &object, &error));
    CHECK_OK(th_scan_free(scan));
    CHECK_OK(th_get(client, table, th_text("k"), NULL, &value, &error));
    CHECK(is_text(value.value, "child"));
    op = th_op_init(TH_OP_INCREMENT, table, th_text("n"));
    op.integer = 1;
    CHECK_OK(th_submit(queue, &op, 1, NULL, &error));
    CHECK_OK(th_queue_close(queue, &error));
    CHECK_OK(th_take(queue, 1, &batch, &error));
    CHECK(batch && batch->results[0]->integer == 1);
    CHECK_OK(th_batch_free(batch));
    CHECK_OK(th_queue_free(queue));
    CHECK_OK(th_client_free(client));
    server_stop(&server);
    return 0;
}
