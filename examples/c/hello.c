/* Writes an object, reads it, and lists its table: hello [URL] */
#include <inttypes.h>
#include <stdio.h>
#include <thunderhead.h>

static int fail(const char *call, const th_error *error) {
    fprintf(stderr, "%s: %s\n", call, error->text);
    return 1;
}

/* Finds the table, and creates it if there is none. */
static th_status open_table(th_client *client, const char *name, uint64_t *table,
                            th_error *error) {
    th_status status = th_table_open(client, name, NULL, table, error);
    if (status == TH_NO_SUCH_TABLE) status = th_table_create(client, name, 1, NULL, table, error);
    /* Another program was faster. */
    if (status == TH_TABLE_EXISTS) status = th_table_open(client, name, NULL, table, error);
    return status;
}

static int hello(th_client *client) {
    th_error error = th_error_init();
    th_value value = th_value_init();
    th_object object = th_object_init();
    th_scan *scan = NULL;
    th_status status;
    uint64_t users, version;

    if (open_table(client, "users", &users, &error) != TH_OK) return fail("table", &error);
    if (th_put(client, users, th_text("ada"), th_text("analyst"), NULL, &version, &error) != TH_OK) {
        return fail("put", &error);
    }

    /* This write happens only if the object is still the same. */
    status = th_put_if(client, users, th_text("ada"), th_text("countess"), th_version_is(version),
                       NULL, NULL, &error);
    if (status == TH_CONDITION_FAILED) {
        printf("another program was faster: version %" PRIu64 "\n", error.version);
    } else if (status != TH_OK) {
        return fail(error.outcome == TH_UNKNOWN ? "look before you repeat it" : "put", &error);
    }

    if (th_get(client, users, th_text("ada"), NULL, &value, &error) != TH_OK) {
        return fail("get", &error);
    }
    if (value.exists) {
        printf("ada is a %.*s\n", (int)value.value.size, (const char *)value.value.data);
    }

    if (th_scan_open(client, users, NULL, &scan, &error) != TH_OK) return fail("scan", &error);
    while ((status = th_scan_next(scan, &object, &error)) == TH_OK) {
        printf("- %.*s\n", (int)object.key.size, (const char *)object.key.data);
    }
    th_scan_free(scan);
    return status == TH_END ? 0 : fail("scan", &error);
}

int main(int count, char **arguments) {
    th_error error = th_error_init();
    th_client *client;
    int code;
    if (th_client_open(count > 1 ? arguments[1] : "thunderhead://localhost", NULL, &client, &error) !=
        TH_OK) {
        return fail("open", &error);
    }
    code = hello(client);
    th_client_free(client);
    return code;
}
