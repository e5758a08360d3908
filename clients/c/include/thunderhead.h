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


/**
 * The most bytes of a key.
 */
#define TH_KEY_BYTES_MAX 65536

/**
 * The most bytes of a value.
 */
#define TH_VALUE_BYTES_MAX 1048576

/**
 * The most operations of one call.
 */
#define TH_OPS_MAX 1048576

/**
 * The bytes of the text of an error, with the terminating zero.
 */
#define TH_ERROR_TEXT_BYTES 256

/**
 * Do it in any case.
 */
#define TH_ALWAYS 0

/**
 * Do it only if the object does not exist.
 */
#define TH_ABSENT 1

/**
 * Do it only if the object exists.
 */
#define TH_PRESENT 2

/**
 * Do it only if the object has this version. Version 0 means that it does not exist.
 */
#define TH_VERSION_IS 3

/**
 * Do it only if the object's version is below this one, or the object does not exist.
 */
#define TH_VERSION_BELOW 4

/**
 * As a time to live: the object never expires.
 */
#define TH_NEVER UINT64_MAX

/**
 * Objects of the table stay, and writes are refused when memory is full.
 */
#define TH_DURABLE 0

/**
 * Objects of the table that were not used lately make room for new ones when memory is full.
 */
#define TH_CACHE 1

/**
 * The value is bytes.
 */
#define TH_BYTES 0

/**
 * The value is a whole number: 8 bytes, little-endian.
 */
#define TH_INT64 1

/**
 * The value is a floating-point number: 8 bytes, little-endian.
 */
#define TH_DOUBLE 2

/**
 * Read `key`.
 */
#define TH_OP_GET 1

/**
 * Write `value`, if `condition` holds.
 */
#define TH_OP_PUT 2

/**
 * Delete the object, if `condition` holds.
 */
#define TH_OP_DELETE 3

/**
 * Add `integer` to a whole number.
 */
#define TH_OP_INCREMENT 4

/**
 * Add `real` to a floating-point number.
 */
#define TH_OP_INCREMENT_DOUBLE 5

/**
 * Write the whole number `integer`, if `condition` holds.
 */
#define TH_OP_PUT_INT64 6

/**
 * Write the floating-point number `real`, if `condition` holds.
 */
#define TH_OP_PUT_DOUBLE 7

/**
 * Create a table. `key` is its name, `integer` the number of shards. Only for queues.
 */
#define TH_OP_TABLE_CREATE 8

/**
 * Drop a table with all its objects. `key` is its name. Only for queues.
 */
#define TH_OP_TABLE_DROP 9

/**
 * Find a table. `key` is its name. Only for queues.
 */
#define TH_OP_TABLE_OPEN 10

/**
 * Change when the object expires, if `condition` holds: it lives for `ttl_ms` from now on. The
 * result has its new version, or 0 if it does not exist.
 */
#define TH_OP_SET_EXPIRY 11

/**
 * Read how long the object still lives: `ttl_ms` of the result.
 */
#define TH_OP_GET_TTL 12

/**
 * The call or operation was done. For a read: it has an answer.
 */
#define TH_DONE 0

/**
 * Nothing was done.
 */
#define TH_NOT_DONE 1

/**
 * The update may have been done or not. Look at the data before you repeat it.
 */
#define TH_UNKNOWN 2

/**
 * A client of a cluster, for one thread at a time. The calling thread does the I/O.
 */
typedef struct th_client th_client;

/**
 * A client of a cluster, for any number of threads. A thread of the library does the I/O.
 */
typedef struct th_queue th_queue;

/**
 * A scan of all objects of a table, for one thread at a time.
 */
typedef struct th_scan th_scan;

/**
 * The status of a call or of one operation. 0 is success.
 *
 * New numbers may come with new releases, so a program treats a number that it does not know as
 * an error. Numbers from 1000 to 1999 are refusals of the cluster: nothing was done.
 */
typedef int32_t th_status;

/**
 * Some bytes. They belong to the caller or to the library; each function says to which.
 *
 * `data` may be `NULL` if `size` is 0.
 */
typedef struct th_slice {
    /**
     * The first byte.
     */
    const void *data;
    /**
     * The number of bytes.
     */
    size_t size;
} th_slice;

/**
 * The result of an operation. The batch owns it, with all its bytes.
 */
typedef struct th_result {
    /**
     * The size of the struct in the library.
     */
    size_t size;
    /**
     * The tag of the operation.
     */
    uint64_t tag;
    /**
     * The status of the operation. The other members are for `TH_OK`, unless they say more.
     */
    th_status status;
    /**
     * `TH_DONE`, `TH_NOT_DONE` or `TH_UNKNOWN`, also after an error.
     */
    int32_t outcome;
    /**
     * The object's version after the operation. After a delete, the version that it had. With
     * `TH_CONDITION_FAILED` and `TH_NOT_A_NUMBER` the version that it has. 0 if it does not
     * exist.
     */
    uint64_t version;
    /**
     * The value that was read.
     */
    struct th_slice value;
    /**
     * The sum of whole numbers.
     */
    int64_t integer;
    /**
     * The sum of floating-point numbers.
     */
    double real;
    /**
     * The id of the table that was created or found.
     */
    uint64_t table;
    /**
     * The reason of a failure: a sentence for people in UTF-8. Empty after success, never `NULL`.
     */
    const char *text;
    /**
     * Whether the object that was read exists, or the object that was deleted existed.
     */
    bool exists;
    /**
     * Zeros.
     */
    uint8_t reserved[7];
    /**
     * How long the object still lives, in milliseconds, or `TH_NEVER`; only for `TH_OP_GET_TTL`.
     */
    uint64_t ttl_ms;
} th_result;

/**
 * The results of many operations. `th_batch_free` releases it with everything in it.
 */
typedef struct th_batch {
    /**
     * The size of the struct in the library.
     */
    size_t size;
    /**
     * The number of results.
     */
    size_t count;
    /**
     * How many of them have another status than `TH_OK`.
     */
    size_t failed;
    /**
     * The results. Those of a synchronous call have the order of the operations.
     */
    const struct th_result *const *results;
} th_batch;

/**
 * The settings of a new client or queue. Zeros mean the defaults.
 */
typedef struct th_options {
    /**
     * `sizeof(th_options)`.
     */
    size_t size;
    /**
     * The time limit of each operation in microseconds, retries included. 0: the limit in the
     * URL, or 10 seconds. At most a year.
     */
    uint64_t deadline_us;
    /**
     * The client calls it now and then while an operation waits. Once it returns true, the
     * operation ends with `TH_CANCELLED`, or with `TH_OUTCOME_UNKNOWN` if it may have been done.
     * The thread that waits calls it. It must not use the client, and must not leave by an
     * exception or `longjmp`. A queue ignores it.
     */
    bool (*interrupt)(void *context);
    /**
     * The argument of `interrupt`.
     */
    void *interrupt_context;
    /**
     * The time between two calls of `interrupt` in microseconds. 0: 50 milliseconds.
     */
    uint64_t interrupt_every_us;
} th_options;

/**
 * The reason why a call failed. The caller owns it and passes it to each call; the call fills it.
 *
 * After a call that succeeded, `code` is `TH_OK` and `outcome` is `TH_DONE`.
 */
typedef struct th_error {
    /**
     * `sizeof(th_error)`. The caller sets it once, for example with `th_error_init()`.
     */
    size_t size;
    /**
     * The status that the call returned.
     */
    th_status code;
    /**
     * `TH_DONE`, `TH_NOT_DONE` or `TH_UNKNOWN`.
     */
    int32_t outcome;
    /**
     * With `TH_CONDITION_FAILED` and `TH_NOT_A_NUMBER` the version that the object has, else 0.
     */
    uint64_t version;
    /**
     * A sentence for people in UTF-8, with a terminating zero.
     */
    char text[TH_ERROR_TEXT_BYTES];
} th_error;

/**
 * The settings of one call. A call takes `NULL` for the defaults.
 */
typedef struct th_call {
    /**
     * `sizeof(th_call)`.
     */
    size_t size;
    /**
     * The time limit of this call in microseconds. 0: that of the client. At most a year.
     */
    uint64_t deadline_us;
    /**
     * Only for writes of one object: how long it lives, in milliseconds, or `TH_NEVER`. The time
     * begins when the server does the write. 0: the table's default.
     */
    uint64_t ttl_ms;
} th_call;

/**
 * The answer to a read.
 */
typedef struct th_value {
    /**
     * `sizeof(th_value)`. The caller sets it once.
     */
    size_t size;
    /**
     * The object's version; 0 if the object does not exist.
     */
    uint64_t version;
    /**
     * The value. The client owns the bytes. They are valid until the next call on this client.
     */
    struct th_slice value;
    /**
     * Whether the object exists. A missing object is not an error.
     */
    bool exists;
    /**
     * Zeros.
     */
    uint8_t reserved[7];
} th_value;

/**
 * The condition of an update. Make it with `th_always()`, `th_absent()`, `th_present()`,
 * `th_version_is()` or `th_version_below()`.
 */
typedef struct th_condition {
    /**
     * `TH_ALWAYS`, `TH_ABSENT`, `TH_PRESENT`, `TH_VERSION_IS` or `TH_VERSION_BELOW`.
     */
    uint32_t kind;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * The version that the condition compares, else 0.
     */
    uint64_t version;
} th_condition;

/**
 * The options of a new table. Zeros mean the defaults. They never change afterwards.
 */
typedef struct th_table_options {
    /**
     * `sizeof(th_table_options)`.
     */
    size_t size;
    /**
     * How long an object lives if its write names no time, in milliseconds. 0 or `TH_NEVER`: for
     * ever.
     */
    uint64_t ttl_ms;
    /**
     * `TH_DURABLE` or `TH_CACHE`.
     */
    uint32_t policy;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * The most bytes of its objects, with their keys and headers. 0: there is no limit. A durable
     * table refuses writes that would exceed it, with `TH_TABLE_FULL`; a cache evicts its own
     * objects.
     */
    uint64_t max_bytes;
    /**
     * The bytes of a cache of which none are evicted for other tables.
     */
    uint64_t reserved_bytes;
} th_table_options;

/**
 * An operation. All members that `kind` does not mention are 0.
 *
 * An array of operations has elements of the same `size`. The library copies keys and values
 * before the call returns.
 */
typedef struct th_op {
    /**
     * `sizeof(th_op)`.
     */
    size_t size;
    /**
     * A number of the caller's own. The result has the same one.
     */
    uint64_t tag;
    /**
     * The id of the table.
     */
    uint64_t table;
    /**
     * The key. For operations on tables, the name of the table in UTF-8.
     */
    struct th_slice key;
    /**
     * The value to write.
     */
    struct th_slice value;
    /**
     * The condition of an update. Increments have none.
     */
    struct th_condition condition;
    /**
     * The whole number to write or to add.
     */
    int64_t integer;
    /**
     * The floating-point number to write or to add.
     */
    double real;
    /**
     * The time limit in microseconds; only for queues. 0: that of the queue. At most a year.
     */
    uint64_t deadline_us;
    /**
     * `TH_OP_GET` and so on. 0 is refused.
     */
    uint32_t kind;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * For writes and `TH_OP_SET_EXPIRY`: how long the object lives, in milliseconds, or
     * `TH_NEVER`. For writes 0 is the table's default.
     */
    uint64_t ttl_ms;
    /**
     * For `TH_OP_TABLE_CREATE`: the options of the table, or `NULL` for the defaults.
     */
    const struct th_table_options *table_options;
} th_op;

/**
 * A key and a value to write.
 */
typedef struct th_pair {
    /**
     * The key.
     */
    struct th_slice key;
    /**
     * The value.
     */
    struct th_slice value;
} th_pair;

/**
 * An object that a scan returns.
 */
typedef struct th_object {
    /**
     * `sizeof(th_object)`. The caller sets it once.
     */
    size_t size;
    /**
     * The object's version.
     */
    uint64_t version;
    /**
     * The key. The scan owns the bytes. They are valid until the next call on this scan.
     */
    struct th_slice key;
    /**
     * The value. The scan owns the bytes. They are valid until the next call on this scan.
     */
    struct th_slice value;
    /**
     * `TH_BYTES`, `TH_INT64` or `TH_DOUBLE`.
     */
    uint32_t kind;
    /**
     * 0.
     */
    uint32_t reserved;
} th_object;

/**
 * A tablet: a part of a table.
 */
typedef struct th_tablet {
    /**
     * The size of the struct in the library.
     */
    size_t size;
    /**
     * The first hash that belongs to it: see `th_key_hash`.
     */
    uint64_t first;
    /**
     * The last hash that belongs to it.
     */
    uint64_t last;
    /**
     * The id of the master that owns it.
     */
    uint64_t master;
    /**
     * The address of that master; `NULL` while the tablet is being recovered.
     */
    const char *address;
} th_tablet;

/**
 * A table.
 */
typedef struct th_table {
    /**
     * The size of the struct in the library.
     */
    size_t size;
    /**
     * Its id, which operations on objects take.
     */
    uint64_t id;
    /**
     * Its name in UTF-8.
     */
    const char *name;
    /**
     * The number of its tablets.
     */
    size_t tablet_count;
    /**
     * Its tablets, by their first hashes, without gaps.
     */
    const struct th_tablet *const *tablets;
    /**
     * How long an object lives if its write names no time, in milliseconds, or `TH_NEVER`.
     */
    uint64_t ttl_ms;
    /**
     * `TH_DURABLE` or `TH_CACHE`.
     */
    uint32_t policy;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * The most bytes of its objects; 0 if there is no limit.
     */
    uint64_t max_bytes;
    /**
     * The bytes of which none are evicted for other tables.
     */
    uint64_t reserved_bytes;
} th_table;

/**
 * Tables. `th_tables_free` releases it with everything in it.
 */
typedef struct th_tables {
    /**
     * The size of the struct in the library.
     */
    size_t size;
    /**
     * The number of tables.
     */
    size_t count;
    /**
     * The tables.
     */
    const struct th_table *const *tables;
} th_tables;

/**
 * The call succeeded.
 */
#define TH_OK 0

/**
 * The condition does not hold. `version` of the error is the object's version, 0 if the object
 * does not exist.
 */
#define TH_CONDITION_FAILED 1

/**
 * There is no table with this id: it was dropped, or never existed.
 */
#define TH_NO_SUCH_TABLE_ID 2

/**
 * The client does not understand the server's answer. An update may have been done.
 */
#define TH_BAD_ANSWER 3

/**
 * The deadline passed: no server answered.
 */
#define TH_NO_ANSWER 4

/**
 * The deadline passed: no coordinator named the server that has the object.
 */
#define TH_NO_MAP 5

/**
 * The deadline passed: the servers have no memory left.
 */
#define TH_NO_SPACE 6

/**
 * The deadline passed: the server had too many requests, or the queue too many operations.
 */
#define TH_BUSY 7

/**
 * The deadline passed or the call was cancelled, and the update may have been done or not.
 */
#define TH_OUTCOME_UNKNOWN 8

/**
 * The deadline passed: no coordinator answered.
 */
#define TH_NO_COORDINATOR 9

/**
 * The options name no coordinator.
 */
#define TH_NO_COORDINATOR_GIVEN 10

/**
 * The system has no descriptor or no thread left for a client.
 */
#define TH_SYSTEM 11

/**
 * The handle is closed.
 */
#define TH_CLOSED 12

/**
 * The deadline passed: the server waited for its backups.
 */
#define TH_AWAITING_REPLICAS 13

/**
 * The deadline passed: the server waited for a coordinator to confirm the client's lease.
 */
#define TH_AWAITING_LEASE 14

/**
 * The deadline passed: the server waited for its cleaners to free memory.
 */
#define TH_AWAITING_MEMORY 15

/**
 * The deadline passed: the object was being recovered or moved.
 */
#define TH_NO_OWNER 16

/**
 * The deadline passed: the coordinator lost its leadership.
 */
#define TH_NO_LEADER 17

/**
 * The deadline passed: another cluster is at the addresses of the client's cluster.
 */
#define TH_OTHER_CLUSTER 18

/**
 * The deadline passed: another operation on the same table was in progress.
 */
#define TH_IN_PROGRESS 19

/**
 * The call was cancelled or interrupted, and was not done.
 */
#define TH_CANCELLED 20

/**
 * The handle was made before the process forked. Make a new one in the child.
 */
#define TH_FORKED 21

/**
 * The key has no bytes.
 */
#define TH_KEY_EMPTY 1010

/**
 * The key is longer than `TH_KEY_BYTES_MAX`, or than an eighth of a segment of the cluster.
 */
#define TH_KEY_TOO_LONG 1011

/**
 * The value is longer than `TH_VALUE_BYTES_MAX`, or than an eighth of a segment of the cluster.
 */
#define TH_VALUE_TOO_LONG 1012

/**
 * The object to increment is not a number, or a number of the other kind. `version` of the error
 * is the object's version.
 */
#define TH_NOT_A_NUMBER 1013

/**
 * The sum does not fit into a number of 64 bits.
 */
#define TH_OVERFLOW 1014

/**
 * The client's lease has expired, because the client was silent for too long.
 */
#define TH_LEASE_ENDED 1018

/**
 * A table of this name exists.
 */
#define TH_TABLE_EXISTS 1019

/**
 * No table has this name.
 */
#define TH_NO_SUCH_TABLE 1020

/**
 * A table's name has 1 to 255 bytes and no control characters.
 */
#define TH_BAD_NAME 1021

/**
 * No tablet has this range, or it cannot be split there.
 */
#define TH_BAD_RANGE 1026

/**
 * There is no such server.
 */
#define TH_NO_SUCH_SERVER 1027

/**
 * The tablet did not move.
 */
#define TH_NOT_MIGRATED 1030

/**
 * The cluster must be switched to a newer format first: `thunderhead cluster set format`.
 */
#define TH_OLD_FORMAT 1047

/**
 * A time to live has at least one millisecond.
 */
#define TH_BAD_TIME_TO_LIVE 1048

/**
 * The table has as many bytes as its `max_bytes` allows. Deletes and writes that make no object
 * larger go on.
 */
#define TH_TABLE_FULL 1049

/**
 * Only a cache reserves bytes, not more than its `max_bytes`, and all reservations must fit into
 * the memory of the servers.
 */
#define TH_BAD_OPTIONS 1050

/**
 * A scan has returned all objects. Not an error.
 */
#define TH_END 2000

/**
 * An argument is `NULL`, misaligned, out of its range, or of an unknown kind. Nothing was done.
 */
#define TH_BAD_ARGUMENT 2001

/**
 * The `size` of a struct is not a size that this library knows. Nothing was done.
 */
#define TH_BAD_SIZE 2002

/**
 * Another thread uses the handle now, or the interrupt callback called its own client. Nothing
 * was done.
 */
#define TH_IN_USE 2003

/**
 * The library has a bug. The outcome is unknown. Further calls on the handle are refused.
 */
#define TH_INTERNAL 2004

/**
 * The URL does not name a cluster, or its hosts have no address.
 */
#define TH_BAD_URL 2005

/**
 * A name is not UTF-8.
 */
#define TH_NOT_UTF8 2006

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the library, such as "0.1.0". The text is never freed.
 */
const char *th_library_version(void);

/**
 * Returns the name of a status, such as "TH_CONDITION_FAILED". The text is never freed.
 */
const char *th_status_name(th_status status);

/**
 * Releases a batch with everything in it. `NULL` is allowed.
 */
th_status th_batch_free(struct th_batch *batch);

/**
 * Opens a client: connects to the cluster that a URL names, such as
 * `thunderhead://host1:7070,host2/?deadline=2s`. Waits until a coordinator answers.
 *
 * `options` may be `NULL`. After a failure `*client` is `NULL`.
 */
th_status th_client_open(const char *url,
                         const struct th_options *options,
                         struct th_client **client,
                         struct th_error *error);

/**
 * Closes a client and ends its lease, so that servers can forget its completion records. Waits for
 * a second at most. Later calls return `TH_CLOSED`; closing again does nothing. The handle stays
 * valid until `th_client_free`.
 */
th_status th_client_close(struct th_client *client,
                          struct th_error *error);

/**
 * Closes a client if it is open, and releases it. Its scans stay valid, but return `TH_CLOSED`.
 * `NULL` is allowed. In the child of a fork, it releases the child's copy only. Returns
 * `TH_IN_USE`, and releases nothing, while another thread uses the client.
 */
th_status th_client_free(struct th_client *client);

/**
 * Sets the time limit of all further calls of a client, in microseconds. At most a year; 0 is
 * refused, because no call may wait for ever.
 */
th_status th_client_set_deadline(struct th_client *client,
                                 uint64_t deadline_us,
                                 struct th_error *error);

/**
 * Reads an object. A missing object is not an error: `value->exists` is false then.
 *
 * The bytes in `value` belong to the client and are valid until the next call on it. `call` may be
 * `NULL`.
 */
th_status th_get(struct th_client *client,
                 uint64_t table,
                 struct th_slice key,
                 const struct th_call *call,
                 struct th_value *value,
                 struct th_error *error);

/**
 * Writes an object. Hands over its new version, unless `version` is `NULL`. `call` may be `NULL`.
 */
th_status th_put(struct th_client *client,
                 uint64_t table,
                 struct th_slice key,
                 struct th_slice value,
                 const struct th_call *call,
                 uint64_t *version,
                 struct th_error *error);

/**
 * Writes an object if a condition holds. Hands over its new version, unless `version` is `NULL`.
 * `call` may be `NULL`.
 *
 * Returns `TH_CONDITION_FAILED` if the condition does not hold; `error->version` is the version
 * that the object has.
 */
th_status th_put_if(struct th_client *client,
                    uint64_t table,
                    struct th_slice key,
                    struct th_slice value,
                    struct th_condition condition,
                    const struct th_call *call,
                    uint64_t *version,
                    struct th_error *error);

/**
 * Deletes an object. Hands over the version that it had, or 0 if it did not exist, unless
 * `version` is `NULL`. `call` may be `NULL`.
 */
th_status th_delete(struct th_client *client,
                    uint64_t table,
                    struct th_slice key,
                    const struct th_call *call,
                    uint64_t *version,
                    struct th_error *error);

/**
 * Deletes an object if a condition holds. Hands over the version that it had, or 0 if it did not
 * exist, unless `version` is `NULL`. `call` may be `NULL`.
 *
 * Returns `TH_CONDITION_FAILED` if the condition does not hold; `error->version` is the version
 * that the object has.
 */
th_status th_delete_if(struct th_client *client,
                       uint64_t table,
                       struct th_slice key,
                       struct th_condition condition,
                       const struct th_call *call,
                       uint64_t *version,
                       struct th_error *error);

/**
 * Adds to a whole number. An object that does not exist counts as 0. Hands over the sum and the
 * object's new version, unless they are `NULL`. `call` may be `NULL`.
 *
 * Returns `TH_NOT_A_NUMBER` if the object was written as bytes or as a floating-point number, and
 * `TH_OVERFLOW` if the sum is too large.
 */
th_status th_increment(struct th_client *client,
                       uint64_t table,
                       struct th_slice key,
                       int64_t by,
                       const struct th_call *call,
                       int64_t *sum,
                       uint64_t *version,
                       struct th_error *error);

/**
 * Adds to a floating-point number. An object that does not exist counts as 0. Hands over the sum
 * and the object's new version, unless they are `NULL`. `call` may be `NULL`.
 *
 * Returns `TH_NOT_A_NUMBER` if the object was written as bytes or as a whole number.
 */
th_status th_increment_double(struct th_client *client,
                              uint64_t table,
                              struct th_slice key,
                              double by,
                              const struct th_call *call,
                              double *sum,
                              uint64_t *version,
                              struct th_error *error);

/**
 * Writes a whole number, to which `th_increment` can add. Reads return its 8 bytes: see
 * `th_int64_of`. Hands over its new version, unless `version` is `NULL`. `call` may be `NULL`.
 */
th_status th_put_int64(struct th_client *client,
                       uint64_t table,
                       struct th_slice key,
                       int64_t number,
                       const struct th_call *call,
                       uint64_t *version,
                       struct th_error *error);

/**
 * Writes a floating-point number, to which `th_increment_double` can add. Reads return its 8
 * bytes: see `th_double_of`. Hands over its new version, unless `version` is `NULL`. `call` may
 * be `NULL`.
 */
th_status th_put_double(struct th_client *client,
                        uint64_t table,
                        struct th_slice key,
                        double number,
                        const struct th_call *call,
                        uint64_t *version,
                        struct th_error *error);

/**
 * Does many operations at once, on any tables, in no particular order. Hands over their results in
 * the order of the operations; free them with `th_batch_free`. `call` may be `NULL`.
 *
 * `TH_OK` says that each operation has a result, and no more: each result has a status of its own.
 * With every other status there is no batch, and nothing was done, except with `TH_INTERNAL`.
 */
th_status th_execute(struct th_client *client,
                     const struct th_op *ops,
                     size_t count,
                     const struct th_call *call,
                     struct th_batch **batch,
                     struct th_error *error);

/**
 * Reads many objects of a table at once: see `th_execute`. The tags of the results are the indices
 * of the keys.
 */
th_status th_get_many(struct th_client *client,
                      uint64_t table,
                      const struct th_slice *keys,
                      size_t count,
                      const struct th_call *call,
                      struct th_batch **batch,
                      struct th_error *error);

/**
 * Writes many objects of a table at once, each by itself: see `th_execute`. The tags of the
 * results are the indices of the pairs.
 */
th_status th_put_many(struct th_client *client,
                      uint64_t table,
                      const struct th_pair *pairs,
                      size_t count,
                      const struct th_call *call,
                      struct th_batch **batch,
                      struct th_error *error);

/**
 * Deletes many objects of a table at once, each by itself: see `th_execute`. The tags of the
 * results are the indices of the keys.
 */
th_status th_delete_many(struct th_client *client,
                         uint64_t table,
                         const struct th_slice *keys,
                         size_t count,
                         const struct th_call *call,
                         struct th_batch **batch,
                         struct th_error *error);

/**
 * Changes when an object expires, if a condition holds: it lives for `ttl_ms` milliseconds from
 * now on, or for ever with `TH_NEVER`. Hands over its new version, or 0 if it does not exist,
 * unless `version` is `NULL`. `call` may be `NULL`.
 *
 * Returns `TH_CONDITION_FAILED` if the condition does not hold; `error->version` is the version
 * that the object has.
 */
th_status th_set_expiry(struct th_client *client,
                        uint64_t table,
                        struct th_slice key,
                        uint64_t ttl_ms,
                        struct th_condition condition,
                        const struct th_call *call,
                        uint64_t *version,
                        struct th_error *error);

/**
 * Hands over how long an object still lives, in milliseconds: `TH_NEVER` if it does not expire, 0
 * if it does not exist. Hands over its version, or 0, unless `version` is `NULL`. `call` may be
 * `NULL`.
 */
th_status th_get_ttl(struct th_client *client,
                     uint64_t table,
                     struct th_slice key,
                     const struct th_call *call,
                     uint64_t *ttl_ms,
                     uint64_t *version,
                     struct th_error *error);

/**
 * Opens a queue: connects to the cluster that a URL names, and starts a thread for the I/O. Waits
 * until a coordinator answers.
 *
 * `options` may be `NULL`. After a failure `*queue` is `NULL`.
 */
th_status th_queue_open(const char *url,
                        const struct th_options *options,
                        struct th_queue **queue,
                        struct th_error *error);

/**
 * Begins operations. Each of them has one result later, which `th_take` hands over. Operations
 * that are submitted together are sent together. They have no order among them.
 *
 * Hands over the number of the first operation, for `th_cancel`, unless `first` is `NULL`; the
 * others have the numbers after it. With any other status than `TH_OK` nothing was begun, except
 * with `TH_INTERNAL`. Any thread may call it.
 */
th_status th_submit(struct th_queue *queue,
                    const struct th_op *ops,
                    size_t count,
                    uint64_t *first,
                    struct th_error *error);

/**
 * Ends an operation before its deadline. Its result comes soon: `TH_CANCELLED` if it was not done,
 * `TH_OUTCOME_UNKNOWN` if it may have been done, or its usual result if it had ended already. Any
 * thread may call it.
 */
th_status th_cancel(struct th_queue *queue,
                    uint64_t number,
                    struct th_error *error);

/**
 * Hands over at most `count_max` results, the oldest first. Does not wait. Free the batch with
 * `th_batch_free`. If there is no result, `*batch` is `NULL`, and the status is `TH_OK`.
 *
 * Once the queue is closed and its last result was taken, the status is `TH_CLOSED`. Any thread
 * may call it; each result goes to one thread.
 */
th_status th_take(struct th_queue *queue,
                  size_t count_max,
                  struct th_batch **batch,
                  struct th_error *error);

/**
 * Hands over a descriptor that is readable while there are results to take. Now and then it is
 * readable although an earlier call has just taken them; `th_take` hands over `NULL` then. Only
 * wait for it, with `poll` or `epoll`: never read from it, write to it or close it. It stays valid
 * until `th_queue_free`.
 */
th_status th_queue_fd(struct th_queue *queue,
                      int *fd,
                      struct th_error *error);

/**
 * Closes a queue. Refuses new operations with `TH_CLOSED`, waits until those in progress have
 * ended, which takes no longer than their deadlines, and ends the lease. Their results can still
 * be taken. Closing again does nothing. The handle stays valid until `th_queue_free`. Any thread
 * may call it.
 */
th_status th_queue_close(struct th_queue *queue,
                         struct th_error *error);

/**
 * Releases a queue. `NULL` is allowed. Operations that are in progress may be done or not; close
 * the queue first if that matters. No other thread may use the queue during this call or later. In
 * the child of a fork, it releases the child's copy only.
 */
th_status th_queue_free(struct th_queue *queue);

/**
 * Begins a scan of all objects of a table, in no particular order. Sends nothing yet.
 *
 * An object that exists during the whole scan is returned exactly once. An object that is created
 * or deleted during the scan may be returned or not. The deadline in `call`, which may be `NULL`,
 * holds for each page. Other calls on the client are allowed during the scan.
 */
th_status th_scan_open(struct th_client *client,
                       uint64_t table,
                       const struct th_call *call,
                       struct th_scan **scan,
                       struct th_error *error);

/**
 * Hands over the next object of a scan. Returns `TH_END`, which is not an error, after the last
 * one.
 *
 * Any other status than `TH_OK` and `TH_END` means that the scan failed and that objects are
 * missing. Later calls return the same failure. The exceptions are `TH_IN_USE` and bad arguments:
 * then the scan goes on with the next call.
 */
th_status th_scan_next(struct th_scan *scan,
                       struct th_object *object,
                       struct th_error *error);

/**
 * Ends a scan and releases it. `NULL` is allowed. Returns `TH_IN_USE`, and releases nothing, while
 * another thread uses the scan.
 */
th_status th_scan_free(struct th_scan *scan);

/**
 * Creates a table, spread over `span` shards, and hands over its id. A name has 1 to 255 bytes of
 * UTF-8. `call` may be `NULL`.
 *
 * Returns `TH_TABLE_EXISTS` if there is a table of this name.
 */
th_status th_table_create(struct th_client *client,
                          const char *name,
                          uint32_t span,
                          const struct th_call *call,
                          uint64_t *table,
                          struct th_error *error);

/**
 * Creates a table with options, spread over `span` shards, and hands over its id: see
 * `th_table_create`. `options` may be `NULL`.
 *
 * Returns `TH_OLD_FORMAT` if an earlier release made the cluster, and its format is still 1, and
 * `TH_BAD_OPTIONS` if the table cannot have these options.
 */
th_status th_table_create_with(struct th_client *client,
                               const char *name,
                               uint32_t span,
                               const struct th_table_options *options,
                               const struct th_call *call,
                               uint64_t *table,
                               struct th_error *error);

/**
 * Finds a table and hands over its id. The id does not change as long as the table exists, and is
 * never reused. `call` may be `NULL`.
 *
 * Returns `TH_NO_SUCH_TABLE` if no table has this name.
 */
th_status th_table_open(struct th_client *client,
                        const char *name,
                        const struct th_call *call,
                        uint64_t *table,
                        struct th_error *error);

/**
 * Drops a table with all its objects. `call` may be `NULL`.
 *
 * Returns `TH_NO_SUCH_TABLE` if no table has this name.
 */
th_status th_table_drop(struct th_client *client,
                        const char *name,
                        const struct th_call *call,
                        struct th_error *error);

/**
 * Hands over all tables, with the location of each tablet. Free them with `th_tables_free`. `call`
 * may be `NULL`.
 */
th_status th_table_list(struct th_client *client,
                        const struct th_call *call,
                        struct th_tables **tables,
                        struct th_error *error);

/**
 * Hands over one table, with the location of each tablet. Free it with `th_tables_free`. `call`
 * may be `NULL`.
 *
 * Returns `TH_NO_SUCH_TABLE` if no table has this name.
 */
th_status th_table_describe(struct th_client *client,
                            const char *name,
                            const struct th_call *call,
                            struct th_tables **tables,
                            struct th_error *error);

/**
 * Splits the tablet that holds the hash `at` into two. `at` is the first hash of the second one.
 * `call` may be `NULL`.
 *
 * Returns `TH_BAD_RANGE` if no tablet can be split there.
 */
th_status th_table_split(struct th_client *client,
                         const char *name,
                         uint64_t at,
                         const struct th_call *call,
                         struct th_error *error);

/**
 * Moves the tablet that begins with the hash `first` to another master, and waits until the move
 * is complete. The move of a large tablet takes longer than the default deadline. `call` may be
 * `NULL`.
 */
th_status th_table_migrate(struct th_client *client,
                           const char *name,
                           uint64_t first,
                           uint64_t master,
                           const struct th_call *call,
                           struct th_error *error);

/**
 * Hands over the hash that places a key: it decides the tablet of its table.
 */
th_status th_key_hash(struct th_slice key,
                      uint64_t *hash,
                      struct th_error *error);

/**
 * Releases tables with everything in them. `NULL` is allowed.
 */
th_status th_tables_free(struct th_tables *tables);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* THUNDERHEAD_H */

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

/* Returns options of a new table with the defaults. */
static inline th_table_options th_table_options_init(void) {
    th_table_options options = TH_ZERO_;
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
