/* Every function of the synchronous client. */
#include "check.h"
#include "server.h"

static void objects_are_written_read_and_deleted(th_client *client, uint64_t table) {
    th_error error = th_error_init();
    th_value value = th_value_init();
    uint64_t version = 0, second = 0;

    CHECK_OK(th_get(client, table, th_text("ada"), NULL, &value, &error));
    CHECK(!value.exists && value.version == 0 && value.value.size == 0);
    CHECK_OK(th_put(client, table, th_text("ada"), th_text("analyst"), NULL, &version, &error));
    CHECK(version > 0 && error.code == TH_OK && error.outcome == TH_DONE && error.text[0] == 0);
    CHECK_OK(th_get(client, table, th_text("ada"), NULL, &value, &error));
    CHECK(value.exists && value.version == version && is_text(value.value, "analyst"));
    CHECK(value.size == sizeof(value));

    /* The result may be left out. */
    CHECK_OK(th_put(client, table, th_text("bob"), th_bytes("", 0), NULL, NULL, NULL));
    CHECK_OK(th_get(client, table, th_text("bob"), NULL, &value, &error));
    CHECK(value.exists && value.value.size == 0 && value.value.data != NULL);

    CHECK_OK(th_delete(client, table, th_text("ada"), NULL, &second, &error));
    CHECK(second == version);
    CHECK_OK(th_delete(client, table, th_text("ada"), NULL, &second, &error));
    CHECK(second == 0);
}

static void a_condition_decides_an_update(th_client *client, uint64_t table) {
    th_error error = th_error_init();
    const th_slice key = th_text("conditions"), value = th_text("v");
    uint64_t first = 0, second = 0;

    CHECK_ERROR(TH_CONDITION_FAILED, TH_NOT_DONE,
                th_put_if(client, table, key, value, th_present(), NULL, NULL, &error));
    CHECK(error.version == 0);
    CHECK_OK(th_put_if(client, table, key, value, th_absent(), NULL, &first, &error));
    CHECK_ERROR(TH_CONDITION_FAILED, TH_NOT_DONE,
                th_put_if(client, table, key, value, th_absent(), NULL, NULL, &error));
    CHECK(error.version == first);
    CHECK_OK(th_put_if(client, table, key, value, th_version_is(first), NULL, &second, &error));
    CHECK(second > first);
    CHECK_ERROR(TH_CONDITION_FAILED, TH_NOT_DONE,
                th_delete_if(client, table, key, th_version_is(first), NULL, NULL, &error));
    CHECK(error.version == second);
    CHECK_ERROR(TH_CONDITION_FAILED, TH_NOT_DONE,
                th_put_if(client, table, key, value, th_version_below(second), NULL, NULL, &error));
    CHECK_OK(th_put_if(client, table, key, value, th_version_below(second + 1), NULL, NULL,
                       &error));
    CHECK_OK(th_delete_if(client, table, key, th_present(), NULL, NULL, &error));
    CHECK_OK(th_put_if(client, table, key, value, th_version_is(0), NULL, NULL, &error));
    CHECK_OK(th_put_if(client, table, key, value, th_always(), NULL, NULL, &error));
}

static void an_object_lives_for_its_time(th_client *client, uint64_t table) {
    th_error error = th_error_init();
    th_value value = th_value_init();
    th_call call = {sizeof(call), 0, 60000};
    const th_slice key = th_text("lives");
    uint64_t ttl = 1, version = 1, second = 0;

    CHECK_OK(th_get_ttl(client, table, key, NULL, &ttl, &version, &error));
    CHECK(ttl == 0 && version == 0);
    CHECK_OK(th_set_expiry(client, table, key, 1000, th_always(), NULL, &version, &error));
    CHECK(version == 0);
    CHECK_OK(th_put(client, table, key, th_text("v"), &call, &version, &error));
    CHECK_OK(th_get_ttl(client, table, key, NULL, &ttl, &second, &error));
    CHECK(ttl > 0 && ttl <= 60000 && second == version);
    CHECK_OK(th_set_expiry(client, table, key, TH_NEVER, th_version_is(version), NULL, &second,
                           &error));
    CHECK(second > version);
    CHECK_ERROR(TH_CONDITION_FAILED, TH_NOT_DONE,
                th_set_expiry(client, table, key, 1, th_version_is(version), NULL, NULL, &error));
    CHECK_OK(th_get_ttl(client, table, key, NULL, &ttl, NULL, &error));
    CHECK(ttl == TH_NEVER);
    CHECK_ERROR(TH_BAD_TIME_TO_LIVE, TH_NOT_DONE,
                th_set_expiry(client, table, key, 0, th_always(), NULL, NULL, &error));
    /* It would be ignored. */
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE,
                th_get(client, table, key, &call, &value, &error));
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE,
                th_get_ttl(client, table, key, &call, &ttl, NULL, &error));

    call.ttl_ms = 1;
    CHECK_OK(th_put_int64(client, table, key, 7, &call, &version, &error));
    do {
        CHECK_OK(th_get(client, table, key, NULL, &value, &error));
    } while (value.exists);
    CHECK_OK(th_put_if(client, table, key, th_text("w"), th_absent(), NULL, &second, &error));
    CHECK(second > version);
}

static void several_objects_get_their_times_at_once(th_client *client, uint64_t table) {
    th_error error = th_error_init();
    th_batch *batch = NULL;
    th_op ops[3] = {{0}};
    const uint32_t kinds[] = {TH_OP_PUT, TH_OP_PUT_DOUBLE, TH_OP_SET_EXPIRY};

    CHECK_OK(th_put(client, table, th_text("t2"), th_text("v"), NULL, NULL, &error));
    for (size_t i = 0; i < 3; i++) {
        ops[i].size = sizeof(ops[i]);
        ops[i].table = table;
        ops[i].kind = kinds[i];
        ops[i].key = th_text(i == 0 ? "t0" : i == 1 ? "t1" : "t2");
        ops[i].ttl_ms = 60000;
    }
    CHECK_OK(th_execute(client, ops, 3, NULL, &batch, &error));
    CHECK(batch->failed == 0 && batch->results[2]->version > 0);
    th_batch_free(batch);
    for (size_t i = 0; i < 3; i++) {
        ops[i].kind = TH_OP_GET_TTL;
        ops[i].ttl_ms = 0;
    }
    CHECK_OK(th_execute(client, ops, 3, NULL, &batch, &error));
    for (size_t i = 0; i < 3; i++) {
        const th_result *it = batch->results[i];
        CHECK(it->exists && it->ttl_ms > 0 && it->ttl_ms <= 60000);
    }
    th_batch_free(batch);
    ops[0].ttl_ms = 5;
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE,
                th_execute(client, ops, 1, NULL, &batch, &error));
}

static void numbers_are_counted(th_client *client, uint64_t table) {
    th_error error = th_error_init();
    th_value value = th_value_init();
    int64_t sum = 0;
    double real = 0;
    uint64_t version = 0;
    const th_slice whole = th_text("whole"), floating = th_text("floating");

    CHECK_OK(th_increment(client, table, whole, 5, NULL, &sum, &version, &error));
    CHECK(sum == 5 && version > 0);
    CHECK_OK(th_increment(client, table, whole, -7, NULL, &sum, NULL, &error));
    CHECK(sum == -2);
    CHECK_OK(th_get(client, table, whole, NULL, &value, &error));
    CHECK(th_int64_of(value.value) == -2);
    CHECK_OK(th_put_int64(client, table, whole, INT64_MAX, NULL, &version, &error));
    CHECK_ERROR(TH_OVERFLOW, TH_NOT_DONE,
                th_increment(client, table, whole, 1, NULL, &sum, NULL, &error));
    CHECK_OK(th_put_double(client, table, floating, 1.25, NULL, &version, &error));
    CHECK_OK(th_increment_double(client, table, floating, 0.5, NULL, &real, &version, &error));
    CHECK(real == 1.75);
    CHECK_OK(th_get(client, table, floating, NULL, &value, &error));
    CHECK(th_double_of(value.value) == 1.75);
    CHECK_ERROR(TH_NOT_A_NUMBER, TH_NOT_DONE,
                th_increment(client, table, floating, 1, NULL, NULL, NULL, &error));
    CHECK(error.version == version);
    CHECK_OK(th_put(client, table, th_text("text"), th_text("1"), NULL, NULL, &error));
    CHECK_ERROR(TH_NOT_A_NUMBER, TH_NOT_DONE,
                th_increment(client, table, th_text("text"), 1, NULL, NULL, NULL, &error));
}

static void many_operations_have_results_in_their_order(th_client *client, uint64_t table) {
    enum { COUNT = 300 };
    th_error error = th_error_init();
    static char names[COUNT][16];
    static th_pair pairs[COUNT];
    static th_slice keys[COUNT + 1];
    th_batch *batch = NULL;
    size_t at;

    for (at = 0; at < COUNT; at++) {
        snprintf(names[at], sizeof(names[at]), "many%zu", at);
        keys[at] = pairs[at].key = pairs[at].value = th_text(names[at]);
    }
    keys[COUNT] = th_text("missing");
    CHECK_OK(th_put_many(client, table, pairs, COUNT, NULL, &batch, &error));
    CHECK(batch->count == COUNT && batch->failed == 0 && batch->size == sizeof(*batch));
    CHECK(batch->results[7]->version > 0 && batch->results[7]->tag == 7);
    CHECK_OK(th_batch_free(batch));

    CHECK_OK(th_get_many(client, table, keys, COUNT + 1, NULL, &batch, &error));
    CHECK(batch->count == COUNT + 1 && batch->failed == 0);
    for (at = 0; at < COUNT; at++) {
        const th_result *result = batch->results[at];
        CHECK(result->status == TH_OK && result->exists && is_text(result->value, names[at]));
    }
    CHECK(!batch->results[COUNT]->exists && batch->results[COUNT]->text[0] == 0);
    CHECK_OK(th_batch_free(batch));

    CHECK_OK(th_delete_many(client, table, keys, COUNT + 1, NULL, &batch, &error));
    CHECK(batch->results[0]->exists && batch->results[0]->version > 0);
    CHECK(!batch->results[COUNT]->exists && batch->results[COUNT]->version == 0);
    CHECK_OK(th_batch_free(batch));

    CHECK_OK(th_get_many(client, table, NULL, 0, NULL, &batch, &error));
    CHECK(batch->count == 0);
    CHECK_OK(th_batch_free(batch));
}

static void operations_of_all_kinds_go_together(th_client *client, uint64_t table) {
    th_error error = th_error_init();
    th_batch *batch = NULL;
    th_op ops[8];
    uint32_t kinds[8] = {TH_OP_GET, TH_OP_PUT,       TH_OP_DELETE,     TH_OP_INCREMENT,
                         TH_OP_PUT, TH_OP_PUT_INT64, TH_OP_PUT_DOUBLE, TH_OP_INCREMENT_DOUBLE};
    const char *keys[8] = {"g", "p", "d", "i", "c", "n", "r", "f"};
    size_t at;
    for (at = 0; at < 8; at++) {
        ops[at] = th_op_init(kinds[at], table, th_text(keys[at]));
        ops[at].tag = 100 + at;
    }
    ops[1].value = th_text("value");
    ops[3].integer = 3;
    ops[4].condition = th_present();
    ops[7].real = 0.5;
    CHECK_OK(th_execute(client, ops, 8, NULL, &batch, &error));
    CHECK(batch->count == 8 && batch->failed == 1);
    CHECK(batch->results[0]->status == TH_OK && !batch->results[0]->exists);
    CHECK(batch->results[1]->version > 0 && batch->results[1]->outcome == TH_DONE);
    CHECK(!batch->results[2]->exists);
    CHECK(batch->results[3]->integer == 3 && batch->results[3]->tag == 103);
    CHECK(batch->results[4]->status == TH_CONDITION_FAILED);
    CHECK(batch->results[4]->outcome == TH_NOT_DONE && strlen(batch->results[4]->text) > 10);
    CHECK(batch->results[7]->real == 0.5);
    CHECK_OK(th_batch_free(batch));
}

static void a_scan_returns_every_object_once(th_client *client) {
    enum { COUNT = 3000 };
    th_error error = th_error_init();
    static unsigned char seen[COUNT];
    uint64_t table = 0;
    th_scan *scan = NULL;
    th_object object = th_object_init();
    th_status status;
    int at, numbers = 0;

    CHECK_OK(th_table_create(client, "scanned", 1, NULL, &table, &error));
    /* An empty table ends at once, and goes on ending. */
    CHECK_OK(th_scan_open(client, table, NULL, &scan, &error));
    CHECK_STATUS(TH_END, th_scan_next(scan, &object, &error));
    CHECK_STATUS(TH_END, th_scan_next(scan, &object, &error));
    CHECK_OK(th_scan_free(scan));

    for (at = 0; at < COUNT; at++) {
        CHECK_OK(th_put(client, table, th_bytes(&at, sizeof(at)), th_text("a value of some bytes"),
                        NULL, NULL, &error));
    }
    CHECK_OK(th_put_int64(client, table, th_text("number"), 9, NULL, NULL, &error));
    CHECK_OK(th_put_double(client, table, th_text("double!"), 9.5, NULL, NULL, &error));
    CHECK_OK(th_scan_open(client, table, NULL, &scan, &error));
    while ((status = th_scan_next(scan, &object, &error)) == TH_OK) {
        CHECK(object.version > 0);
        if (object.key.size == sizeof(at)) {
            memcpy(&at, object.key.data, sizeof(at));
            CHECK(at >= 0 && at < COUNT && !seen[at] && object.kind == TH_BYTES);
            seen[at] = 1;
            if (at == 100) {
                /* Other calls are allowed meanwhile, and do not change the object. */
                CHECK_OK(th_put(client, table, th_text("x"), th_text("y"), NULL, NULL, &error));
                CHECK(is_text(object.value, "a value of some bytes"));
            }
        } else if (object.kind == TH_INT64) {
            CHECK(th_int64_of(object.value) == 9);
            numbers++;
        } else if (object.kind == TH_DOUBLE) {
            CHECK(th_double_of(object.value) == 9.5);
            numbers++;
        }
    }
    CHECK(status == TH_END && numbers == 2);
    for (at = 0; at < COUNT; at++) CHECK(seen[at]);
    CHECK_OK(th_scan_free(scan));

    /* A scan in the middle of its table can be freed, also after its table is gone. */
    CHECK_OK(th_scan_open(client, table, NULL, &scan, &error));
    CHECK_OK(th_scan_next(scan, &object, &error));
    CHECK_OK(th_table_drop(client, "scanned", NULL, &error));
    while ((status = th_scan_next(scan, &object, &error)) == TH_OK) {
    }
    /* Its failure is loud, and stays. */
    CHECK_ERROR(TH_NO_SUCH_TABLE_ID, TH_NOT_DONE, th_scan_next(scan, &object, &error));
    CHECK_ERROR(TH_NO_SUCH_TABLE_ID, TH_NOT_DONE, th_scan_next(scan, &object, &error));
    CHECK_OK(th_scan_free(scan));
}

static void tables_are_made_found_split_and_dropped(th_client *client) {
    th_error error = th_error_init();
    uint64_t made = 0, found = 0, hash = 0, master;
    th_tables *tables = NULL;
    const th_table *table;

    CHECK_ERROR(TH_NO_SUCH_TABLE, TH_NOT_DONE,
                th_table_open(client, "tables", NULL, &found, &error));
    CHECK_OK(th_table_create(client, "tables", 1, NULL, &made, &error));
    CHECK_ERROR(TH_TABLE_EXISTS, TH_NOT_DONE,
                th_table_create(client, "tables", 1, NULL, &found, &error));
    CHECK_OK(th_table_open(client, "tables", NULL, &found, &error));
    CHECK(made == found && made > 0);

    CHECK_OK(th_table_list(client, NULL, &tables, &error));
    CHECK(tables->size == sizeof(*tables) && tables->count >= 1);
    CHECK_OK(th_tables_free(tables));
    CHECK_OK(th_table_describe(client, "tables", NULL, &tables, &error));
    CHECK(tables->count == 1);
    table = tables->tables[0];
    CHECK(table->id == made && strcmp(table->name, "tables") == 0 && table->tablet_count == 1);
    CHECK(table->tablets[0]->first == 0 && table->tablets[0]->last == UINT64_MAX);
    CHECK(table->tablets[0]->address && strchr(table->tablets[0]->address, ':'));
    master = table->tablets[0]->master;
    CHECK_OK(th_tables_free(tables));

    CHECK_OK(th_key_hash(th_text("abc"), &hash, &error));
    CHECK(hash == 0x78af5f94892f3950u);
    CHECK_OK(th_table_split(client, "tables", hash, NULL, &error));
    CHECK_OK(th_table_describe(client, "tables", NULL, &tables, &error));
    CHECK(tables->tables[0]->tablet_count == 2 && tables->tables[0]->tablets[1]->first == hash);
    CHECK_OK(th_tables_free(tables));
    /* A repeated split changes nothing. */
    CHECK_OK(th_table_split(client, "tables", hash, NULL, &error));
    CHECK_OK(th_put(client, made, th_text("abc"), th_text("v"), NULL, NULL, &error));
    /* The only master has it already, so there is nothing to move, or nowhere to move it. */
    CHECK(th_table_migrate(client, "tables", hash, master + 1000, NULL, &error) != TH_OK);
    CHECK(error.outcome == TH_NOT_DONE);

    CHECK_OK(th_table_drop(client, "tables", NULL, &error));
    CHECK_ERROR(TH_NO_SUCH_TABLE, TH_NOT_DONE,
                th_table_drop(client, "tables", NULL, &error));
    CHECK_ERROR(TH_NO_SUCH_TABLE, TH_NOT_DONE,
                th_table_describe(client, "tables", NULL, &tables, &error));
    CHECK(tables == NULL);
    CHECK_ERROR(TH_NO_SUCH_TABLE_ID, TH_NOT_DONE,
                th_put(client, made, th_text("abc"), th_text("v"), NULL, NULL, &error));
}

static void a_table_keeps_its_options(th_client *client) {
    th_error error = th_error_init();
    th_tables *tables = NULL;
    th_table_options options = th_table_options_init();
    const char bytes[1000] = {0};
    uint64_t table = 0, ttl = 0;

    options.ttl_ms = 60000;
    options.policy = TH_CACHE;
    options.max_bytes = 1 << 20;
    options.reserved_bytes = 1 << 10;
    CHECK_OK(th_table_create_with(client, "options", 1, &options, NULL, &table, &error));
    CHECK_OK(th_put(client, table, th_text("k"), th_text("v"), NULL, NULL, &error));
    CHECK_OK(th_get_ttl(client, table, th_text("k"), NULL, &ttl, NULL, &error));
    CHECK(ttl > 0 && ttl <= 60000);
    CHECK_OK(th_table_describe(client, "options", NULL, &tables, &error));
    CHECK(tables->tables[0]->ttl_ms == 60000 && tables->tables[0]->policy == TH_CACHE);
    CHECK(tables->tables[0]->max_bytes == 1 << 20 && tables->tables[0]->reserved_bytes == 1 << 10);
    th_tables_free(tables);

    CHECK_OK(th_table_create_with(client, "defaults", 1, NULL, NULL, &table, &error));
    CHECK_OK(th_table_describe(client, "defaults", NULL, &tables, &error));
    CHECK(tables->tables[0]->ttl_ms == TH_NEVER && tables->tables[0]->policy == TH_DURABLE);
    th_tables_free(tables);

    options.policy = TH_DURABLE;
    CHECK_ERROR(TH_BAD_OPTIONS, TH_NOT_DONE,
                th_table_create_with(client, "none", 1, &options, NULL, &table, &error));
    options.reserved_bytes = 0;
    options.max_bytes = 1000;
    CHECK_OK(th_table_create_with(client, "small", 1, &options, NULL, &table, &error));
    CHECK_OK(th_put(client, table, th_text("k"), th_text("v"), NULL, NULL, &error));
    CHECK_ERROR(TH_TABLE_FULL, TH_NOT_DONE,
                th_put(client, table, th_text("l"), th_bytes(bytes, sizeof(bytes)), NULL, NULL,
                       &error));
    options.policy = 2;
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE,
                th_table_create_with(client, "none", 1, &options, NULL, &table, &error));
    options.policy = TH_DURABLE;
    options.reserved = 1;
    CHECK_ERROR(TH_BAD_ARGUMENT, TH_NOT_DONE,
                th_table_create_with(client, "none", 1, &options, NULL, &table, &error));
    options.size = 1;
    CHECK_ERROR(TH_BAD_SIZE, TH_NOT_DONE,
                th_table_create_with(client, "none", 1, &options, NULL, &table, &error));
}

static void a_closed_client_refuses_every_call(const char *url) {
    th_error error = th_error_init();
    th_client *client = NULL;
    th_value value = th_value_init();
    th_object object = th_object_init();
    th_scan *scan = NULL, *other = NULL;
    th_batch *batch = NULL;
    th_tables *tables = NULL;
    th_slice key = th_text("k");
    uint64_t id;

    CHECK_OK(th_client_open(url, NULL, &client, &error));
    CHECK_OK(th_client_set_deadline(client, 5000000, &error));
    CHECK_OK(th_scan_open(client, 1, NULL, &scan, &error));
    CHECK_OK(th_client_close(client, &error));
    CHECK_OK(th_client_close(client, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_get(client, 1, key, NULL, &value, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_put(client, 1, key, key, NULL, NULL, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_delete(client, 1, key, NULL, NULL, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE,
                th_increment(client, 1, key, 1, NULL, NULL, NULL, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_put_int64(client, 1, key, 1, NULL, NULL, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE,
                th_get_many(client, 1, &key, 1, NULL, &batch, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_table_open(client, "t", NULL, &id, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_table_list(client, NULL, &tables, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_client_set_deadline(client, 1, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_scan_open(client, 1, NULL, &other, &error));
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_scan_next(scan, &object, &error));
    CHECK_OK(th_client_free(client));
    /* A scan outlives its client. */
    CHECK_ERROR(TH_CLOSED, TH_NOT_DONE, th_scan_next(scan, &object, &error));
    CHECK_OK(th_scan_free(scan));
}

static void large_values_come_back_whole(th_client *client, uint64_t table) {
    th_error error = th_error_init();
    th_value value = th_value_init();
    /* The limit is an eighth of a segment, and the store for tests has small ones. */
    const size_t size = 50000;
    char *bytes = malloc(size);
    CHECK(bytes);
    memset(bytes, 'x', size);
    CHECK_OK(th_put(client, table, th_text("large"), th_bytes(bytes, size), NULL, NULL, &error));
    CHECK_OK(th_get(client, table, th_text("large"), NULL, &value, &error));
    CHECK(value.value.size == size && memcmp(value.value.data, bytes, size) == 0);
    free(bytes);
}

int main(void) {
    th_error error = th_error_init();
    th_client *client = NULL;
    uint64_t table = 0;
    test_server server = server_start(NULL, NULL);

    CHECK(strcmp(th_library_version(), TH_VERSION) == 0);
    CHECK(strcmp(th_status_name(TH_IN_USE), "TH_IN_USE") == 0);
    CHECK_OK(th_client_open(server.url, NULL, &client, &error));
    CHECK_OK(th_table_create(client, "objects", 1, NULL, &table, &error));
    objects_are_written_read_and_deleted(client, table);
    a_condition_decides_an_update(client, table);
    an_object_lives_for_its_time(client, table);
    several_objects_get_their_times_at_once(client, table);
    numbers_are_counted(client, table);
    many_operations_have_results_in_their_order(client, table);
    operations_of_all_kinds_go_together(client, table);
    large_values_come_back_whole(client, table);
    a_scan_returns_every_object_once(client);
    tables_are_made_found_split_and_dropped(client);
    a_table_keeps_its_options(client);
    a_closed_client_refuses_every_call(server.url);
    CHECK_OK(th_client_free(client));
    server_stop(&server);
    return 0;
}
