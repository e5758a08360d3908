/* The driver of the client for C: docs/testing/drivers.md says what it reads and writes.
 *
 * It reads requests from its standard input, one line of JSON each, and writes a reply for each. Each
 * client has a thread. A request that makes no sense is a fault of the judge: it ends the driver with
 * status 1. */
#include "base64.h"
#include "fail.h"
#include "thunderhead.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A client and its thread. */
struct performer {
    /* The next one in the list of all. */
    struct performer *next;
    json_int_t number;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Requests that came. `lock` protects it, as it does `is_ending`. */
    json_t *requests;
    int is_ending;
    /* The rest belongs to the thread. */
    th_client *db;
    /* The ids of tables by their names. */
    json_t *tables;
};

/* Returns what has been allocated. */
static void *allocated(void *made) {
    if (!made) fail("there is no memory left");
    return made;
}

/* Returns a member of a request. */
static json_t *member(const json_t *request, const char *name) {
    json_t *found = json_object_get(request, name);
    if (!found) fail("a request has no %s", name);
    return found;
}

static const char *text_of(const json_t *text) {
    const char *found = json_string_value(text);
    if (!found) fail("a request has something else where it needs a text");
    return found;
}

static const char *text(const json_t *request, const char *name) {
    return text_of(member(request, name));
}

static uint64_t unsigned_of(const char *digits) {
    char *end = NULL;
    errno = 0;
    const uint64_t number = strtoull(digits, &end, 10);
    if (errno || end == digits || *end) fail("%s is not a version", digits);
    return number;
}

static int64_t number(const json_t *request, const char *name) {
    const char *digits = text(request, name);
    char *end = NULL;
    errno = 0;
    const int64_t number = strtoll(digits, &end, 10);
    if (errno || end == digits || *end) fail("%s is not a whole number", digits);
    return number;
}

/* Returns the bytes of a text in base64. The caller frees them. */
static th_slice decoded(const json_t *text) {
    size_t size = 0;
    const void *data = base64_decode(text_of(text), &size);
    if (!data) fail("%s is not base64", text_of(text));
    return th_bytes(data, size);
}

static void release(th_slice bytes) {
    free((void *)(uintptr_t)bytes.data);
}

static json_t *encoded(th_slice bytes) {
    char *text = allocated(base64_encode(bytes.data, bytes.size));
    json_t *json = json_string(text);
    free(text);
    return json;
}

static th_condition condition(const json_t *request) {
    const json_t *it = json_object_get(request, "if");
    if (!it) return th_always();
    if (json_is_object(it)) return th_version_is(unsigned_of(text(it, "version")));
    if (strcmp(text_of(it), "absent") == 0) return th_absent();
    if (strcmp(text_of(it), "present") == 0) return th_present();
    fail("there is no condition %s", text_of(it));
    return th_always();
}

/* Replies. */

static json_t *digits(uint64_t number) {
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, number);
    return json_string(text);
}

static json_t *versioned(uint64_t version) {
    return json_pack("{s:o}", "version", digits(version));
}

static json_t *absent(void) {
    return json_pack("{s:b}", "absent", 1);
}

static json_t *found(bool exists, uint64_t version, th_slice value) {
    if (!exists) return absent();
    return json_pack("{s:o, s:o}", "version", digits(version), "value", encoded(value));
}

static json_t *failed(th_status code, int32_t outcome, uint64_t version, const char *text) {
    return json_pack("{s:i, s:s, s:o, s:s}", "code", code, "outcome",
                     outcome == TH_NOT_DONE ? "not_done" : "unknown", "version", digits(version),
                     "text", text);
}

/* Writes the reply of a request. Takes `content`. */
static void write_reply(const json_t *request, const char *kind, json_t *content) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    json_t *reply =
        allocated(json_pack("{s:O, s:o}", "id", member(request, "id"), kind, allocated(content)));
    char *line = allocated(json_dumps(reply, JSON_COMPACT));
    pthread_mutex_lock(&lock);
    puts(line);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
    free(line);
    json_decref(reply);
}

/* Performs one operation as a batch, as only those of a batch can put a number on a condition. */
static th_status put_number(th_client *db, const th_op *op, uint64_t *version, th_error *error) {
    th_batch *batch = NULL;
    if (th_execute(db, op, 1, NULL, &batch, error) != TH_OK) return error->code;
    const th_result *result = batch->results[0];
    error->code = result->status;
    error->outcome = result->outcome;
    error->version = result->version;
    snprintf(error->text, sizeof(error->text), "%s", result->text);
    *version = result->version;
    th_batch_free(batch);
    return error->code;
}

/* Makes the reply of many operations. */
static json_t *results_of(th_batch *batch, bool are_reads) {
    json_t *results = json_array();
    for (size_t at = 0; at < batch->count; at++) {
        const th_result *it = batch->results[at];
        json_t *result;
        if (it->status != TH_OK) {
            result = json_pack("{s:o}", "error",
                               failed(it->status, it->outcome, it->version, it->text));
        } else {
            result = are_reads ? found(it->exists, it->version, it->value) : versioned(it->version);
        }
        json_array_append_new(results, result);
    }
    th_batch_free(batch);
    return json_pack("{s:o}", "results", results);
}

static json_t *get_many(th_client *db, uint64_t table, const json_t *request, th_error *error) {
    const json_t *keys = member(request, "keys");
    const size_t count = json_array_size(keys);
    th_slice *slices = allocated(calloc(count + 1, sizeof(*slices)));
    for (size_t at = 0; at < count; at++) slices[at] = decoded(json_array_get(keys, at));
    th_batch *batch = NULL;
    const th_status status = th_get_many(db, table, slices, count, NULL, &batch, error);
    for (size_t at = 0; at < count; at++) release(slices[at]);
    free(slices);
    return status == TH_OK ? results_of(batch, true) : NULL;
}

static json_t *put_many(th_client *db, uint64_t table, const json_t *request, th_error *error) {
    const json_t *objects = member(request, "objects");
    const size_t count = json_array_size(objects);
    th_pair *pairs = allocated(calloc(count + 1, sizeof(*pairs)));
    for (size_t at = 0; at < count; at++) {
        const json_t *object = json_array_get(objects, at);
        pairs[at].key = decoded(json_array_get(object, 0));
        pairs[at].value = decoded(json_array_get(object, 1));
    }
    th_batch *batch = NULL;
    const th_status status = th_put_many(db, table, pairs, count, NULL, &batch, error);
    for (size_t at = 0; at < count; at++) {
        release(pairs[at].key);
        release(pairs[at].value);
    }
    free(pairs);
    return status == TH_OK ? results_of(batch, false) : NULL;
}

static json_t *scan(th_client *db, uint64_t table, th_error *error) {
    th_scan *scan = NULL;
    if (th_scan_open(db, table, NULL, &scan, error) != TH_OK) return NULL;
    json_t *objects = json_array();
    th_object object = th_object_init();
    th_status status;
    while ((status = th_scan_next(scan, &object, error)) == TH_OK) {
        json_array_append_new(
            objects, json_pack("{s:o, s:o, s:o}", "key", encoded(object.key), "value",
                               encoded(object.value), "version", digits(object.version)));
    }
    th_scan_free(scan);
    if (status == TH_END) return json_pack("{s:o}", "objects", objects);
    json_decref(objects);
    return NULL;
}

/* Performs an operation on one object. Returns NULL after an error. */
static json_t *perform_one(th_client *db, uint64_t table, const json_t *request, th_error *error) {
    const char *op = text(request, "op");
    const th_slice key = decoded(member(request, "key"));
    uint64_t version = 0;
    json_t *ok = NULL;
    if (strcmp(op, "get") == 0) {
        th_value value = th_value_init();
        if (th_get(db, table, key, NULL, &value, error) == TH_OK) {
            ok = found(value.exists, value.version, value.value);
        }
    } else if (strcmp(op, "put") == 0) {
        const th_slice value = decoded(member(request, "value"));
        const th_condition holds = condition(request);
        if (th_put_if(db, table, key, value, holds, NULL, &version, error) == TH_OK) {
            ok = versioned(version);
        }
        release(value);
    } else if (strcmp(op, "put_number") == 0) {
        th_op put = th_op_init(TH_OP_PUT_INT64, table, key);
        put.integer = number(request, "number");
        put.condition = condition(request);
        if (put_number(db, &put, &version, error) == TH_OK) ok = versioned(version);
    } else if (strcmp(op, "delete") == 0) {
        if (th_delete_if(db, table, key, condition(request), NULL, &version, error) == TH_OK) {
            ok = version == 0 ? absent() : versioned(version);
        }
    } else if (strcmp(op, "increment") == 0) {
        int64_t sum = 0;
        const int64_t by = number(request, "by");
        if (th_increment(db, table, key, by, NULL, &sum, &version, error) == TH_OK) {
            char text[24];
            snprintf(text, sizeof(text), "%" PRId64, sum);
            ok = json_pack("{s:o, s:s}", "version", digits(version), "sum", text);
        }
    } else {
        fail("there is no operation %s", op);
    }
    release(key);
    return ok;
}

/* Finds the id of a table. */
static th_status table_of(struct performer *it, const json_t *request, uint64_t *id,
                          th_error *error) {
    const char *name = text(request, "table");
    const json_t *known = json_object_get(it->tables, name);
    if (known) {
        *id = (uint64_t)json_integer_value(known);
        return TH_OK;
    }
    if (th_table_open(it->db, name, NULL, id, error) == TH_OK) {
        json_object_set_new(it->tables, name, json_integer((json_int_t)*id));
    }
    return error->code;
}

/* Performs a request. Returns NULL after an error. */
static json_t *perform(struct performer *it, const json_t *request, th_error *error) {
    const char *op = text(request, "op");
    if (strcmp(op, "open") == 0) {
        return th_client_open(text(request, "url"), NULL, &it->db, error) ? NULL : json_object();
    }
    if (strcmp(op, "close") == 0) {
        return th_client_close(it->db, error) ? NULL : json_object();
    }
    uint64_t table = 0;
    if (table_of(it, request, &table, error) != TH_OK) return NULL;
    if (strcmp(op, "get_many") == 0) return get_many(it->db, table, request, error);
    if (strcmp(op, "put_many") == 0) return put_many(it->db, table, request, error);
    if (strcmp(op, "scan") == 0) return scan(it->db, table, error);
    return perform_one(it->db, table, request, error);
}

/* Waits for the next request and takes it. Returns NULL at the end. */
static json_t *take(struct performer *it) {
    json_t *request = NULL;
    pthread_mutex_lock(&it->lock);
    while (json_array_size(it->requests) == 0 && !it->is_ending) {
        pthread_cond_wait(&it->changed, &it->lock);
    }
    if (json_array_size(it->requests) > 0) {
        request = json_incref(json_array_get(it->requests, 0));
        json_array_remove(it->requests, 0);
    }
    pthread_mutex_unlock(&it->lock);
    return request;
}

static void *run(void *argument) {
    struct performer *it = argument;
    json_t *request;
    while ((request = take(it)) != NULL) {
        th_error error = th_error_init();
        json_t *ok = perform(it, request, &error);
        if (ok) {
            write_reply(request, "ok", ok);
        } else {
            write_reply(request, "error",
                        failed(error.code, error.outcome, error.version, error.text));
        }
        json_decref(request);
    }
    th_client_free(it->db);
    return NULL;
}

static struct performer *start(json_int_t number, struct performer *next) {
    struct performer *it = allocated(calloc(1, sizeof(*it)));
    it->next = next;
    it->number = number;
    it->requests = json_array();
    it->tables = json_object();
    pthread_mutex_init(&it->lock, NULL);
    pthread_cond_init(&it->changed, NULL);
    if (pthread_create(&it->thread, NULL, run, it) != 0) fail("there is no thread left");
    return it;
}

/* Gives a request to a performer. NULL is the end. Takes `request`. */
static void push(struct performer *it, json_t *request) {
    pthread_mutex_lock(&it->lock);
    if (request) {
        json_array_append_new(it->requests, request);
    } else {
        it->is_ending = 1;
    }
    pthread_cond_signal(&it->changed);
    pthread_mutex_unlock(&it->lock);
}

/* Returns the place of a client's performer in the list; that of NULL if there is none. */
static struct performer **find(struct performer **all, json_int_t number) {
    while (*all && (*all)->number != number) all = &(*all)->next;
    return all;
}

/* Waits until a performer has done its requests, and releases it. Returns the next one. */
static struct performer *end(struct performer *it) {
    struct performer *next = it->next;
    push(it, NULL);
    pthread_join(it->thread, NULL);
    pthread_mutex_destroy(&it->lock);
    pthread_cond_destroy(&it->changed);
    json_decref(it->requests);
    json_decref(it->tables);
    free(it);
    return next;
}

int main(void) {
    struct performer *all = NULL;
    char *line = NULL;
    size_t capacity = 0;
    /* So that threads do not choose the seed of hashes at the same time. */
    json_object_seed(0);
    puts("{\"ready\":true,\"language\":\"c\",\"modes\":[\"sync\"]}");
    fflush(stdout);
    while (getline(&line, &capacity, stdin) > 0) {
        json_error_t error;
        json_t *request = json_loads(line, 0, &error);
        if (!request) fail("a request is not JSON: %s", error.text);
        const json_int_t number = json_integer_value(member(request, "client"));
        if (strcmp(text(request, "op"), "open") == 0) {
            const char *mode = text(request, "mode");
            if (strcmp(mode, "sync") != 0) fail("there is no mode %s", mode);
            /* A client that is opened again gets another performer. */
            struct performer **former = find(&all, number);
            if (*former) *former = end(*former);
            all = start(number, all);
        }
        struct performer *it = *find(&all, number);
        if (!it) fail("the client %lld is not open", (long long)number);
        push(it, request);
    }
    free(line);
    while (all) all = end(all);
    return 0;
}
