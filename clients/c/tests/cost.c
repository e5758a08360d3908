/* Measures the client for C: docs/testing/costs.md describes its input and output.
 *
 * It reads requests from its standard input, one line of JSON each, does rounds of operations, and
 * writes the time of an operation in each round. It has no Redis client. A request that makes no
 * sense is a fault of the judge: it ends the program with status 1. */
#include "fail.h"
#include "thunderhead.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEYS = 100 };

/* A client, its table, and the objects of all calls. */
struct cost {
    th_client *db;
    uint64_t table;
    char names[KEYS][16];
    th_slice keys[KEYS];
    th_pair pairs[KEYS];
    th_slice value;
};

static void check(th_status status, const th_error *error) {
    if (status != TH_OK) fail("%s", error->text);
}

static const char *text(const json_t *request, const char *name) {
    const char *found = json_string_value(json_object_get(request, name));
    if (!found) fail("a request has no text %s", name);
    return found;
}

static size_t number(const json_t *request, const char *name) {
    const json_int_t found = json_integer_value(json_object_get(request, name));
    if (found <= 0) fail("a request has no number %s", name);
    return (size_t)found;
}

static void put_many(struct cost *cost, size_t calls) {
    th_error error = th_error_init();
    for (size_t call = 0; call < calls; call++) {
        th_batch *batch = NULL;
        check(th_put_many(cost->db, cost->table, cost->pairs, KEYS, NULL, &batch, &error), &error);
        if (batch->failed) fail("%zu writes of a call failed", batch->failed);
        th_batch_free(batch);
    }
}

static void get_many(struct cost *cost, size_t calls) {
    th_error error = th_error_init();
    for (size_t call = 0; call < calls; call++) {
        th_batch *batch = NULL;
        check(th_get_many(cost->db, cost->table, cost->keys, KEYS, NULL, &batch, &error), &error);
        if (batch->failed || !batch->results[0]->exists) fail("reads of a call failed");
        th_batch_free(batch);
    }
}

static void gets(struct cost *cost, size_t count) {
    th_error error = th_error_init();
    th_value value = th_value_init();
    for (size_t at = 0; at < count; at++) {
        check(th_get(cost->db, cost->table, cost->keys[0], NULL, &value, &error), &error);
        if (value.value.size != cost->value.size) fail("an object is not there");
    }
}

static void puts_one(struct cost *cost, size_t count) {
    th_error error = th_error_init();
    uint64_t version = 0;
    for (size_t at = 0; at < count; at++) {
        check(th_put(cost->db, cost->table, cost->keys[0], cost->value, NULL, &version, &error), &error);
    }
}

/* Connects, and writes an object under each key. */
static void start(struct cost *cost, const json_t *request) {
    th_error error = th_error_init();
    char *value = calloc(1, number(request, "value_bytes"));
    if (!value) fail("there is no memory left");
    cost->value = th_bytes(value, number(request, "value_bytes"));
    for (size_t at = 0; at < KEYS; at++) {
        snprintf(cost->names[at], sizeof(cost->names[at]), "key%zu", at);
        cost->keys[at] = th_text(cost->names[at]);
        cost->pairs[at].key = cost->keys[at];
        cost->pairs[at].value = cost->value;
    }
    check(th_client_open(text(request, "url"), NULL, &cost->db, &error), &error);
    check(th_table_open(cost->db, text(request, "table"), NULL, &cost->table, &error), &error);
    put_many(cost, 1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Does a round, and returns the nanoseconds of an operation. */
static double round_of(struct cost *cost, const char *work, size_t count) {
    const double began = now();
    if (strcmp(work, "get") == 0) {
        gets(cost, count);
    } else if (strcmp(work, "put") == 0) {
        puts_one(cost, count);
    } else if (strcmp(work, "get_many") == 0) {
        get_many(cost, count / KEYS);
    } else if (strcmp(work, "put_many") == 0) {
        put_many(cost, count / KEYS);
    } else {
        fail("there is no work %s", work);
    }
    return (now() - began) / (double)count;
}

static json_t *reply_to(struct cost *cost, const json_t *request) {
    if (strcmp(text(request, "store"), "thunderhead") != 0) {
        return json_pack("{ss}", "missing", "the program for C has no Redis client");
    }
    if (strcmp(text(request, "mode"), "sync") != 0) fail("there is no mode %s", text(request, "mode"));
    if (!cost->db) start(cost, request);
    json_t *rounds = json_array();
    for (size_t left = number(request, "rounds"); left > 0; left--) {
        const double took = round_of(cost, text(request, "work"), number(request, "count"));
        json_array_append_new(rounds, json_real(took));
    }
    return json_pack("{so}", "ns", rounds);
}

int main(void) {
    static struct cost cost;
    char *line = NULL;
    size_t capacity = 0;
    puts("{\"ready\":true,\"language\":\"c\",\"modes\":[\"sync\"]}");
    fflush(stdout);
    while (getline(&line, &capacity, stdin) > 0) {
        json_error_t error;
        json_t *request = json_loads(line, 0, &error);
        if (!request) fail("a request is not JSON: %s", error.text);
        json_t *reply = reply_to(&cost, request);
        json_object_set(reply, "id", json_object_get(request, "id"));
        json_dumpf(reply, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(reply);
        json_decref(request);
    }
    free(line);
    if (cost.db) th_client_free(cost.db);
    free((void *)cost.value.data);
    return 0;
}
