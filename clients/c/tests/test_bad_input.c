/* Bad arguments are refused with typed errors, and nothing is done. */
#include "check.h"
#include "server.h"

static void null_is_refused(th_client *client, th_queue *queue, const char *url) {
    th_error error = th_error_init();
    const th_slice key = th_text("k"), none = {NULL, 5};
    th_value value = th_value_init();
    th_object object = th_object_init();
    th_batch *batch = NULL;
    th_client *other = (th_client *)&error;
    th_queue *other_queue = (th_queue *)&error;
    th_tables *tables = NULL;
    th_scan *scan = NULL;
    uint64_t id;
    int fd;
#define REFUSED(call) CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE, call)
    REFUSED(th_client_open(NULL, NULL, &other, &error));
    CHECK(other == NULL);
    REFUSED(th_client_open(url, NULL, NULL, &error));
    REFUSED(th_client_close(NULL, &error));
    REFUSED(th_client_set_deadline(NULL, 1, &error));
    REFUSED(th_get(NULL, 1, key, NULL, &value, &error));
    REFUSED(th_get(client, 1, none, NULL, &value, &error));
    REFUSED(th_get(client, 1, key, NULL, NULL, &error));
    REFUSED(th_put(NULL, 1, key, key, NULL, NULL, &error));
    REFUSED(th_put(client, 1, none, key, NULL, NULL, &error));
    REFUSED(th_put(client, 1, key, none, NULL, NULL, &error));
    REFUSED(th_put_if(NULL, 1, key, key, th_always(), NULL, NULL, &error));
    REFUSED(th_delete(NULL, 1, key, NULL, NULL, &error));
    REFUSED(th_delete_if(NULL, 1, key, th_always(), NULL, NULL, &error));
    REFUSED(th_increment(NULL, 1, key, 1, NULL, NULL, NULL, &error));
    REFUSED(th_increment_double(NULL, 1, key, 1, NULL, NULL, NULL, &error));
    REFUSED(th_put_int64(NULL, 1, key, 1, NULL, NULL, &error));
    REFUSED(th_put_double(NULL, 1, key, 1, NULL, NULL, &error));
    REFUSED(th_execute(client, NULL, 1, NULL, &batch, &error));
    REFUSED(th_execute(client, NULL, 0, NULL, NULL, &error));
    REFUSED(th_get_many(client, 1, NULL, 1, NULL, &batch, &error));
    REFUSED(th_get_many(NULL, 1, &key, 1, NULL, &batch, &error));
    REFUSED(th_put_many(client, 1, NULL, 1, NULL, &batch, &error));
    REFUSED(th_delete_many(client, 1, NULL, 1, NULL, &batch, &error));
    REFUSED(th_scan_open(NULL, 1, NULL, &scan, &error));
    REFUSED(th_scan_open(client, 1, NULL, NULL, &error));
    REFUSED(th_scan_next(NULL, &object, &error));
    REFUSED(th_table_create(NULL, "t", 1, NULL, &id, &error));
    REFUSED(th_table_create(client, NULL, 1, NULL, &id, &error));
    REFUSED(th_table_create(client, "t", 1, NULL, NULL, &error));
    REFUSED(th_table_open(client, NULL, NULL, &id, &error));
    REFUSED(th_table_drop(client, NULL, NULL, &error));
    REFUSED(th_table_list(NULL, NULL, &tables, &error));
    REFUSED(th_table_list(client, NULL, NULL, &error));
    REFUSED(th_table_describe(client, NULL, NULL, &tables, &error));
    REFUSED(th_table_split(client, NULL, 1, NULL, &error));
    REFUSED(th_table_migrate(client, NULL, 1, 1, NULL, &error));
    REFUSED(th_key_hash(key, NULL, &error));
    REFUSED(th_queue_open(NULL, NULL, &other_queue, &error));
    CHECK(other_queue == NULL);
    REFUSED(th_queue_open(url, NULL, NULL, &error));
    REFUSED(th_submit(NULL, NULL, 0, NULL, &error));
    REFUSED(th_submit(queue, NULL, 1, NULL, &error));
    REFUSED(th_cancel(NULL, 0, &error));
    REFUSED(th_take(NULL, 1, &batch, &error));
    REFUSED(th_take(queue, 1, NULL, &error));
    REFUSED(th_queue_fd(NULL, &fd, &error));
    REFUSED(th_queue_fd(queue, NULL, &error));
    REFUSED(th_queue_close(NULL, &error));
#undef REFUSED
    /* Releasing nothing is allowed. */
    CHECK_OK(th_client_free(NULL));
    CHECK_OK(th_queue_free(NULL));
    CHECK_OK(th_scan_free(NULL));
    CHECK_OK(th_batch_free(NULL));
    CHECK_OK(th_tables_free(NULL));
    /* An error is not needed to be refused. */
    CHECK(th_get(NULL, 1, key, NULL, NULL, NULL) == TH_BAD_ARGUMENT);
}

static void wrong_sizes_are_refused(th_client *client, th_queue *queue, const char *url) {
    th_error error = th_error_init(), bad_error = th_error_init();
    const th_slice key = th_text("k");
    th_value value = th_value_init();
    th_call call = th_deadline(1000000);
    th_options options = th_options_init();
    th_client *other = NULL;
    th_batch *batch = NULL;
    th_op ops[2] = {th_op_init(TH_OP_GET, 1, key), th_op_init(TH_OP_GET, 1, key)};
    const size_t sizes[] = {0, 1, 7, 5000, SIZE_MAX};
    size_t at;
    for (at = 0; at < sizeof(sizes) / sizeof(sizes[0]); at++) {
        value = th_value_init();
        value.size = sizes[at];
        CHECK_ERROR(TH_BAD_SIZE, TH_NOT_DONE, th_get(client, 1, key, NULL, &value, &error));
        call.size = sizes[at];
        value = th_value_init();
        CHECK_ERROR(TH_BAD_SIZE, TH_NOT_DONE, th_get(client, 1, key, &call, &value, &error));
        options.size = sizes[at];
        CHECK_ERROR(TH_BAD_SIZE, TH_NOT_DONE, th_client_open(url, &options, &other, &error));
        ops[0].size = sizes[at];
        CHECK_ERROR(TH_BAD_SIZE, TH_NOT_DONE, th_execute(client, ops, 2, NULL, &batch, &error));
        CHECK_ERROR(TH_BAD_SIZE, TH_NOT_DONE, th_submit(queue, ops, 2, NULL, &error));
        /* There is no place for the reason, but the status says it. */
        bad_error.size = sizes[at];
        CHECK(th_get(client, 1, key, NULL, &value, &bad_error) == TH_BAD_SIZE);
        CHECK(bad_error.code == TH_OK);
    }
    ops[0] = th_op_init(TH_OP_GET, 1, key);
    ops[1].size = sizeof(th_op) + 8;
    CHECK_ERROR(TH_BAD_SIZE, TH_NOT_DONE, th_execute(client, ops, 2, NULL, &batch, &error));
    CHECK(batch == NULL);
}

static void programs_of_other_releases_work(th_client *client, uint64_t table) {
    th_error error = th_error_init();
    /* A program with a shorter error gets the beginning of the text. */
    struct {
        size_t size;
        th_status code;
        int32_t outcome;
        uint64_t version;
        char text[16];
        char behind[8];
    } shorter;
    memset(&shorter, 'z', sizeof(shorter));
    shorter.size = offsetof(th_error, text) + sizeof(shorter.text);
    CHECK(th_put(client, table, th_bytes("", 0), th_text("v"), NULL, NULL, (th_error *)&shorter) ==
          TH_KEY_EMPTY);
    CHECK(shorter.code == TH_KEY_EMPTY && shorter.outcome == TH_NOT_DONE);
    CHECK(strlen(shorter.text) == sizeof(shorter.text) - 1);
    CHECK(memcmp(shorter.behind, "zzzzzzzz", sizeof(shorter.behind)) == 0);

    /* A program of a later release has members that this library does not know. */
    struct {
        th_value known;
        uint64_t later;
        uint64_t behind;
    } longer;
    memset(&longer, 'z', sizeof(longer));
    longer.known = th_value_init();
    longer.known.size = offsetof(__typeof__(longer), behind);
    CHECK_OK(th_put(client, table, th_text("k"), th_text("v"), NULL, NULL, &error));
    CHECK_OK(th_get(client, table, th_text("k"), NULL, &longer.known, &error));
    CHECK(longer.known.exists && is_text(longer.known.value, "v") && longer.later == 0);
    CHECK(longer.behind == 0x7a7a7a7a7a7a7a7au);
    CHECK(longer.known.size == offsetof(__typeof__(longer), behind));

    /* It may even pass them, as long as it does not use them. */
    struct {
        th_op known;
        uint64_t later;
    } ops[2];
    th_batch *batch = NULL;
    memset(ops, 0, sizeof(ops));
    ops[0].known = ops[1].known = th_op_init(TH_OP_GET, table, th_text("k"));
    ops[0].known.size = ops[1].known.size = sizeof(ops[0]);
    CHECK_OK(th_execute(client, &ops[0].known, 2, NULL, &batch, &error));
    CHECK(batch->count == 2 && batch->results[1]->exists);
    CHECK_OK(th_batch_free(batch));
    ops[1].later = 1;
    CHECK_ERROR(TH_BAD_SIZE, TH_NOT_DONE,
                th_execute(client, &ops[0].known, 2, NULL, &batch, &error));

    /* Settings may be left out. */
    struct {
        size_t size;
    } empty = {8};
    CHECK_OK(th_put(client, table, th_text("k"), th_text("v"), (const th_call *)&empty, NULL,
                    &error));
}

static void keys_values_and_names_have_limits(th_client *client, th_queue *queue, uint64_t table) {
    th_error error = th_error_init();
    const size_t size = TH_VALUE_BYTES_MAX + 1;
    char *bytes = calloc(1, size);
    const th_slice key = th_text("k"), empty = th_bytes(NULL, 0);
    const th_slice long_key = th_bytes(bytes, TH_KEY_BYTES_MAX + 1);
    const th_slice long_value = th_bytes(bytes, size);
    th_value value = th_value_init();
    th_pair pairs[2] = {{key, key}, {empty, key}};
    th_slice keys[2] = {key, long_key};
    th_batch *batch = NULL;
    th_op ops[2] = {th_op_init(TH_OP_PUT, table, th_text("first")),
                    th_op_init(TH_OP_PUT, table, long_key)};
    char name[300];
    uint64_t id;
    CHECK(bytes);

    CHECK_ERROR(TH_KEY_EMPTY, TH_NOT_DONE, th_get(client, table, empty, NULL, &value, &error));
    CHECK_ERROR(TH_KEY_TOO_LONG, TH_NOT_DONE,
                th_get(client, table, long_key, NULL, &value, &error));
    CHECK_ERROR(TH_KEY_EMPTY, TH_NOT_DONE,
                th_put(client, table, empty, key, NULL, NULL, &error));
    CHECK_ERROR(TH_VALUE_TOO_LONG, TH_NOT_DONE,
                th_put(client, table, key, long_value, NULL, NULL, &error));
    CHECK_ERROR(TH_KEY_TOO_LONG, TH_NOT_DONE,
                th_increment(client, table, long_key, 1, NULL, NULL, NULL, &error));
    /* One bad element refuses the whole call, and is named. */
    CHECK_ERROR(TH_KEY_EMPTY, TH_NOT_DONE,
                th_put_many(client, table, pairs, 2, NULL, &batch, &error));
    CHECK(strstr(error.text, "element 1") && batch == NULL);
    CHECK_ERROR(TH_KEY_TOO_LONG, TH_NOT_DONE,
                th_get_many(client, table, keys, 2, NULL, &batch, &error));
    CHECK_ERROR(TH_KEY_TOO_LONG, TH_NOT_DONE,
                th_execute(client, ops, 2, NULL, &batch, &error));
    CHECK_ERROR(TH_KEY_TOO_LONG, TH_NOT_DONE, th_submit(queue, ops, 2, NULL, &error));
    CHECK_OK(th_get(client, table, th_text("first"), NULL, &value, &error));
    CHECK(!value.exists);
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE,
                th_get_many(client, table, keys, TH_OPS_MAX + 1, NULL, &batch, &error));

    CHECK_ERROR(TH_NOT_UTF8, TH_NOT_DONE,
                th_table_create(client, "caf\xe9", 1, NULL, &id, &error));
    CHECK_ERROR(TH_NOT_UTF8, TH_NOT_DONE, th_table_open(client, "caf\xe9", NULL, &id, &error));
    CHECK_ERROR(TH_BAD_NAME, TH_NOT_DONE, th_table_create(client, "", 1, NULL, &id, &error));
    CHECK_ERROR(TH_BAD_NAME, TH_NOT_DONE, th_table_create(client, "a\nb", 1, NULL, &id, &error));
    memset(name, 'n', sizeof(name));
    name[256] = 0;
    CHECK_ERROR(TH_BAD_NAME, TH_NOT_DONE, th_table_create(client, name, 1, NULL, &id, &error));
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE,
                th_table_create(client, "t", 0, NULL, &id, &error));
    ops[0] = th_op_init(TH_OP_TABLE_CREATE, 0, th_text("caf\xe9"));
    ops[0].integer = 1;
    CHECK_ERROR(TH_NOT_UTF8, TH_NOT_DONE, th_submit(queue, ops, 1, NULL, &error));
    free(bytes);
}

static void odd_settings_are_refused(th_client *client, th_queue *queue, const char *url) {
    th_error error = th_error_init();
    const uint64_t two_years = 63072000000000u;
    th_call call = th_deadline(two_years);
    th_value value = th_value_init();
    th_options options = th_options_init();
    th_client *other = NULL;
    th_condition condition = th_always();
    th_batch *batch = NULL;
    th_op op = th_op_init(0, 1, th_text("k"));
    const char *urls[] = {"",
                          "localhost",
                          "redis://localhost",
                          "thunderhead://",
                          "thunderhead://h:0",
                          "thunderhead://h/?deadline=never",
                          "thunderhead://no-such-host.invalid/"};
    size_t at;

    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE,
                th_get(client, 1, th_text("k"), &call, &value, &error));
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE, th_client_set_deadline(client, two_years, &error));
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE, th_client_set_deadline(client, 0, &error));
    options.deadline_us = two_years;
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE, th_client_open(url, &options, &other, &error));
    for (at = 0; at < sizeof(urls) / sizeof(urls[0]); at++) {
        CHECK_ERROR(TH_BAD_URL, TH_NOT_DONE, th_client_open(urls[at], NULL, &other, &error));
        CHECK(other == NULL);
    }
    CHECK_ERROR(TH_NOT_UTF8, TH_NOT_DONE,
                th_client_open("thunderhead://\xff", NULL, &other, &error));

    condition.kind = 99;
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE,
                th_put_if(client, 1, th_text("k"), th_text("v"), condition, NULL, NULL, &error));
    condition = th_absent();
    condition.version = 5;
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE,
                th_put_if(client, 1, th_text("k"), th_text("v"), condition, NULL, NULL, &error));
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE, th_execute(client, &op, 1, NULL, &batch, &error));
    op.kind = 999;
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE, th_submit(queue, &op, 1, NULL, &error));
    op = th_op_init(TH_OP_TABLE_DROP, 0, th_text("t"));
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE, th_execute(client, &op, 1, NULL, &batch, &error));
    op = th_op_init(TH_OP_GET, 1, th_text("k"));
    op.condition = th_absent();
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE, th_execute(client, &op, 1, NULL, &batch, &error));
    op = th_op_init(TH_OP_TABLE_CREATE, 0, th_text("t"));
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE, th_submit(queue, &op, 1, NULL, &error));
}

int main(void) {
    th_error error = th_error_init();
    th_client *client = NULL;
    th_queue *queue = NULL;
    uint64_t table = 0;
    test_server server = server_start(NULL, NULL);
    CHECK_OK(th_client_open(server.url, NULL, &client, &error));
    CHECK_OK(th_queue_open(server.url, NULL, &queue, &error));
    CHECK_OK(th_table_create(client, "objects", 1, NULL, &table, &error));
    null_is_refused(client, queue, server.url);
    wrong_sizes_are_refused(client, queue, server.url);
    programs_of_other_releases_work(client, table);
    keys_values_and_names_have_limits(client, queue, table);
    odd_settings_are_refused(client, queue, server.url);
    CHECK_OK(th_queue_free(queue));
    CHECK_OK(th_client_free(client));
    server_stop(&server);
    return 0;
}
