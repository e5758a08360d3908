/*
 * Thunderhead: a durable, exactly-once key-value store in memory. The client for C.
 *
 * This file is generated: clients/c/header.sh makes it from crates/capi.
 *
 * A client, th_client, is for one thread at a time: the calling thread does the I/O. A queue,
 * th_queue, is for any number of threads and for event loops: the library's own thread does the
 * I/O.
 *
 *     th_error error = th_error_init();
 *     th_client *client;
 *     if (th_client_open("thunderhead://localhost", NULL, &client, &error) != TH_OK) {
 *         fprintf(stderr, "%s\n", error.text);
 *         return 1;
 *     }
 *     uint64_t users, version;
 *     th_table_open(client, "users", NULL, &users, &error);
 *     th_put(client, users, th_text("ada"), th_text("analyst"), NULL, &version, &error);
 *     th_client_free(client);
 *
 * Errors
 *
 * Each call returns a status, TH_OK after success, and fills the th_error of its caller, which may
 * be NULL. `outcome` says whether an update was done: TH_NOT_DONE or TH_UNKNOWN. No update is ever
 * done twice: the client repeats an update under one identity until its deadline.
 * After TH_UNKNOWN, look at the data before you repeat the update.
 *
 * Rules
 *
 * - A pointer is NULL where the function allows it, or valid. A NULL that is not allowed is refused
 *   with TH_BAD_ARGUMENT.
 * - Each struct begins with its size. Set it to sizeof, and all members that you do not use to 0:
 *   begin with the th_..._init() functions. Then your program works with later releases too.
 *   The library refuses a size that it cannot understand with TH_BAD_SIZE.
 * - The library copies keys and values before a call returns. Each struct that the library fills
 *   says how long its bytes stay valid.
 * - Release each handle once. A released handle is not a handle any more: do not use it. A handle
 *   that is closed and not released refuses every call with TH_CLOSED.
 * - After fork, the child's calls on handles of the parent return TH_FORKED. Only the release of a
 *   handle is useful there. The child opens handles of its own.
 * - No function prints, ends the process, calls exit handlers, uses errno, or waits for longer than
 *   its deadline.
 */

#ifndef THUNDERHEAD_H
#define THUNDERHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this header: see th_library_version. */
#define TH_VERSION "0.1.0"

typedef int32_t th_status;
#define TH_OK 0
#define TH_CONDITION_FAILED 1
#define TH_NO_SUCH_TABLE_ID 2
#define TH_BAD_ANSWER 3
#define TH_NO_ANSWER 4
#define TH_NO_MAP 5
#define TH_NO_SPACE 6
#define TH_BUSY 7
#define TH_OUTCOME_UNKNOWN 8
#define TH_NO_COORDINATOR 9
#define TH_NO_COORDINATOR_GIVEN 10
#define TH_SYSTEM 11
#define TH_CLOSED 12
#define TH_AWAITING_REPLICAS 13
#define TH_AWAITING_LEASE 14
#define TH_AWAITING_MEMORY 15
#define TH_NO_OWNER 16
#define TH_NO_LEADER 17
#define TH_OTHER_CLUSTER 18
#define TH_IN_PROGRESS 19
#define TH_CANCELLED 20
#define TH_FORKED 21
#define TH_KEY_EMPTY 1010
#define TH_KEY_TOO_LONG 1011
#define TH_VALUE_TOO_LONG 1012
#define TH_NOT_A_NUMBER 1013
#define TH_OVERFLOW 1014
#define TH_LEASE_ENDED 1018
#define TH_TABLE_EXISTS 1019
#define TH_NO_SUCH_TABLE 1020
#define TH_BAD_NAME 1021
#define TH_BAD_RANGE 1026
#define TH_NO_SUCH_SERVER 1027
#define TH_NOT_MIGRATED 1030
#define TH_END 2000
#define TH_BAD_ARGUMENT 2001
#define TH_BAD_SIZE 2002
#define TH_IN_USE 2003
#define TH_INTERNAL 2004
#define TH_BAD_URL 2005
#define TH_NOT_UTF8 2006
#define TH_DONE 0
#define TH_NOT_DONE 1
#define TH_UNKNOWN 2
#define TH_KEY_BYTES_MAX 65536
#define TH_VALUE_BYTES_MAX 1048576
#define TH_OPS_MAX 1048576
#define TH_ERROR_TEXT_BYTES 256
#define TH_ALWAYS 0
#define TH_ABSENT 1
#define TH_PRESENT 2
#define TH_VERSION_IS 3
#define TH_VERSION_BELOW 4
#define TH_BYTES 0
#define TH_INT64 1
#define TH_DOUBLE 2
#define TH_OP_GET 1
#define TH_OP_PUT 2
#define TH_OP_DELETE 3
#define TH_OP_INCREMENT 4
#define TH_OP_INCREMENT_DOUBLE 5
#define TH_OP_PUT_INT64 6
#define TH_OP_PUT_DOUBLE 7
#define TH_OP_TABLE_CREATE 8
#define TH_OP_TABLE_DROP 9
#define TH_OP_TABLE_OPEN 10
typedef struct th_client th_client;
typedef struct th_queue th_queue;
typedef struct th_scan th_scan;
typedef struct th_slice {
    const void *data;
    size_t size;
} th_slice;

typedef struct th_condition {
    uint32_t kind;
    uint32_t reserved;
    uint64_t version;
} th_condition;

typedef struct th_pair {
    th_slice key;
    th_slice value;
} th_pair;

typedef struct th_error {
    size_t size;
    th_status code;
    int32_t outcome;
    uint64_t version;
    char text[TH_ERROR_TEXT_BYTES];
} th_error;

typedef struct th_options {
    size_t size;
    uint64_t deadline_us;
    bool (*interrupt)(void *context);
    void *interrupt_context;
    uint64_t interrupt_every_us;
} th_options;

typedef struct th_call {
    size_t size;
    uint64_t deadline_us;
} th_call;

typedef struct th_value {
    size_t size;
    uint64_t version;
    th_slice value;
    bool exists;
    uint8_t reserved[7];
} th_value;

typedef struct th_object {
    size_t size;
    uint64_t version;
    th_slice key;
    th_slice value;
    uint32_t kind;
    uint32_t reserved;
} th_object;

typedef struct th_op {
    size_t size;
    uint64_t tag;
    uint64_t table;
    th_slice key;
    th_slice value;
    th_condition condition;
    int64_t integer;
    double real;
    uint64_t deadline_us;
    uint32_t kind;
    uint32_t reserved;
} th_op;

typedef struct th_result {
    size_t size;
    uint64_t tag;
    th_status status;
    int32_t outcome;
    uint64_t version;
    th_slice value;
    int64_t integer;
    double real;
    uint64_t table;
    const char *text;
    bool exists;
    uint8_t reserved[7];
} th_result;

typedef struct th_batch {
    size_t size;
    size_t count;
    size_t failed;
    const th_result *const *results;
} th_batch;

typedef struct th_tablet {
    size_t size;
    uint64_t first;
    uint64_t last;
    uint64_t master;
    const char *address;
} th_tablet;

typedef struct th_table {
    size_t size;
    uint64_t id;
    const char *name;
    size_t tablet_count;
    const th_tablet *const *tablets;
} th_table;

typedef struct th_tables {
    size_t size;
    size_t count;
    const th_table *const *tables;
} th_tables;

#ifdef __cplusplus
extern "C" {
#endif
th_status th_client_open(const char *url, const th_options *options, th_client **client, th_error *error);
th_status th_client_close(th_client *client, th_error *error);
th_status th_client_free(th_client *client);
th_status th_client_set_deadline(th_client *client, uint64_t deadline_us, th_error *error);
th_status th_get(th_client *client, uint64_t table, th_slice key, const th_call *call, th_value *value, th_error *error);
th_status th_put(th_client *client, uint64_t table, th_slice key, th_slice value, const th_call *call, uint64_t *version, th_error *error);
th_status th_put_if(th_client *client, uint64_t table, th_slice key, th_slice value, th_condition condition, const th_call *call, uint64_t *version, th_error *error);
th_status th_delete(th_client *client, uint64_t table, th_slice key, const th_call *call, uint64_t *version, th_error *error);
th_status th_delete_if(th_client *client, uint64_t table, th_slice key, th_condition condition, const th_call *call, uint64_t *version, th_error *error);
th_status th_increment(th_client *client, uint64_t table, th_slice key, int64_t by, const th_call *call, int64_t *sum, uint64_t *version, th_error *error);
th_status th_increment_double(th_client *client, uint64_t table, th_slice key, double by, const th_call *call, double *sum, uint64_t *version, th_error *error);
th_status th_put_int64(th_client *client, uint64_t table, th_slice key, int64_t number, const th_call *call, uint64_t *version, th_error *error);
th_status th_put_double(th_client *client, uint64_t table, th_slice key, double number, const th_call *call, uint64_t *version, th_error *error);
th_status th_execute(th_client *client, const th_op *ops, size_t count, const th_call *call, th_batch **batch, th_error *error);
th_status th_get_many(th_client *client, uint64_t table, const th_slice *keys, size_t count, const th_call *call, th_batch **batch, th_error *error);
th_status th_put_many(th_client *client, uint64_t table, const th_pair *pairs, size_t count, const th_call *call, th_batch **batch, th_error *error);
th_status th_delete_many(th_client *client, uint64_t table, const th_slice *keys, size_t count, const th_call *call, th_batch **batch, th_error *error);
th_status th_queue_open(const char *url, const th_options *options, th_queue **queue, th_error *error);
th_status th_submit(th_queue *queue, const th_op *ops, size_t count, uint64_t *first, th_error *error);
th_status th_cancel(th_queue *queue, uint64_t number, th_error *error);
th_status th_take(th_queue *queue, size_t count_max, th_batch **batch, th_error *error);
th_status th_queue_fd(th_queue *queue, int *fd, th_error *error);
th_status th_queue_close(th_queue *queue, th_error *error);
th_status th_queue_free(th_queue *queue);
th_status th_scan_open(th_client *client, uint64_t table, const th_call *call, th_scan **scan, th_error *error);
th_status th_scan_next(th_scan *scan, th_object *object, th_error *error);
th_status th_scan_free(th_scan *scan);
th_status th_batch_free(th_batch *batch);
th_status th_table_create(th_client *client, const char *name, uint32_t span, const th_call *call, uint64_t *table, th_error *error);
th_status th_table_open(th_client *client, const char *name, const th_call *call, uint64_t *table, th_error *error);
th_status th_table_drop(th_client *client, const char *name, const th_call *call, th_error *error);
th_status th_table_list(th_client *client, const th_call *call, th_tables **tables, th_error *error);
th_status th_table_describe(th_client *client, const char *name, const th_call *call, th_tables **tables, th_error *error);
th_status th_table_split(th_client *client, const char *name, uint64_t at, const th_call *call, th_error *error);
th_status th_table_migrate(th_client *client, const char *name, uint64_t first, uint64_t master, const th_call *call, th_error *error);
th_status th_key_hash(th_slice key, uint64_t *hash, th_error *error);
th_status th_tables_free(th_tables *tables);
const char *th_library_version(void);
const char *th_status_name(th_status status);
#ifdef __cplusplus
}
#endif
/* Zeros for all members, without warnings in either language. */
#ifdef __cplusplus
#define TH_ZERO_ {}
#else
#define TH_ZERO_ {0}
#endif

/* Returns an error to pass to calls. */
static inline th_error th_error_init(void) {
    th_error error;
    error.size = sizeof(error);
    error.code = TH_OK;
    error.outcome = TH_DONE;
    error.version = 0;
    error.text[0] = 0;
    return error;
}

/* Returns options with the defaults. */
static inline th_options th_options_init(void) {
    th_options options = TH_ZERO_;
    options.size = sizeof(options);
    return options;
}

/* Returns the settings of a call with a time limit in microseconds. */
static inline th_call th_deadline(uint64_t deadline_us) {
    th_call call = TH_ZERO_;
    call.size = sizeof(call);
    call.deadline_us = deadline_us;
    return call;
}

/* Returns a value for th_get to fill. */
static inline th_value th_value_init(void) {
    th_value value = TH_ZERO_;
    value.size = sizeof(value);
    return value;
}

/* Returns an object for th_scan_next to fill. */
static inline th_object th_object_init(void) {
    th_object object = TH_ZERO_;
    object.size = sizeof(object);
    return object;
}

/* Returns an operation of a kind, TH_OP_GET and so on, on an object. */
static inline th_op th_op_init(uint32_t kind, uint64_t table, th_slice key) {
    th_op op = TH_ZERO_;
    op.size = sizeof(op);
    op.kind = kind;
    op.table = table;
    op.key = key;
    return op;
}

/* Returns a slice of some bytes. */
static inline th_slice th_bytes(const void *data, size_t size) {
    th_slice slice;
    slice.data = data;
    slice.size = size;
    return slice;
}

/* Returns a slice of a text, without its terminating zero. */
static inline th_slice th_text(const char *text) {
    size_t size = 0;
    while (text && text[size]) {
        size++;
    }
    return th_bytes(text, size);
}

/* Returns a condition. */
static inline th_condition th_condition_of(uint32_t kind, uint64_t version) {
    th_condition condition;
    condition.kind = kind;
    condition.reserved = 0;
    condition.version = version;
    return condition;
}

/* The condition that always holds. */
static inline th_condition th_always(void) {
    return th_condition_of(TH_ALWAYS, 0);
}

/* The condition that the object does not exist. */
static inline th_condition th_absent(void) {
    return th_condition_of(TH_ABSENT, 0);
}

/* The condition that the object exists. */
static inline th_condition th_present(void) {
    return th_condition_of(TH_PRESENT, 0);
}

/* The condition that the object has this version. */
static inline th_condition th_version_is(uint64_t version) {
    return th_condition_of(TH_VERSION_IS, version);
}

/* The condition that the object has a version below this one, or does not exist. */
static inline th_condition th_version_below(uint64_t version) {
    return th_condition_of(TH_VERSION_BELOW, version);
}

/* Decodes the value of a number. Returns 0 if it does not have 8 bytes. */
static inline uint64_t th_bits_of(th_slice value) {
    const unsigned char *bytes = (const unsigned char *)value.data;
    uint64_t bits = 0;
    size_t at;
    for (at = 0; value.size == 8 && at < 8; at++) {
        bits |= (uint64_t)bytes[at] << (8 * at);
    }
    return bits;
}

/* Decodes the value of a whole number, for example from th_get. Returns 0 if it does not have 8
 * bytes. */
static inline int64_t th_int64_of(th_slice value) {
    return (int64_t)th_bits_of(value);
}

/* Decodes the value of a floating-point number, for example from th_get. Returns 0 if it does not
 * have 8 bytes. */
static inline double th_double_of(th_slice value) {
    union {
        uint64_t bits;
        double number;
    } both;
    both.bits = th_bits_of(value);
    return both.number;
}

#undef TH_ZERO_

#endif