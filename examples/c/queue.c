/* A queue of jobs for any number of workers: queue [URL] [JOBS]
 *
 * A job is an object. A worker claims it with a conditional write: of several workers that try, one
 * succeeds. Workers may be in other processes, on other machines. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thunderhead.h>

static const char *url;

static void fail(const th_error *error) {
    fprintf(stderr, "%s\n", error->text);
    exit(1);
}

/* Claims jobs until none is left. Returns how many it did. */
static void *work(void *context) {
    const uint64_t jobs = *(const uint64_t *)context;
    th_error error = th_error_init();
    th_object object = th_object_init();
    th_client *client;
    th_scan *scan;
    th_status status;
    uint64_t claimed;
    uintptr_t done = 0;

    /* A client is for one thread, so each worker has its own. */
    if (th_client_open(url, NULL, &client, &error) != TH_OK) fail(&error);
    if (th_scan_open(client, jobs, NULL, &scan, &error) != TH_OK) fail(&error);
    while ((status = th_scan_next(scan, &object, &error)) == TH_OK) {
        if (object.value.size != 3 || memcmp(object.value.data, "new", 3) != 0) continue;
        status = th_put_if(client, jobs, object.key, th_text("claimed"),
                           th_version_is(object.version), NULL, &claimed, &error);
        if (status == TH_CONDITION_FAILED) continue; /* Another worker was faster. */
        if (status != TH_OK) fail(&error);
        /* The work itself would be here. Then the job is removed, if it is still ours. */
        if (th_delete_if(client, jobs, object.key, th_version_is(claimed), NULL, NULL, &error) !=
            TH_OK) {
            fail(&error);
        }
        done++;
    }
    if (status != TH_END) fail(&error);
    th_scan_free(scan);
    th_client_free(client);
    return (void *)done;
}

int main(int count, char **arguments) {
    enum { WORKERS = 3 };
    const long total = count > 2 ? strtol(arguments[2], NULL, 10) : 300;
    th_error error = th_error_init();
    th_client *client;
    pthread_t workers[WORKERS];
    uint64_t jobs;
    uintptr_t done = 0;
    char key[32];
    long at;

    url = count > 1 ? arguments[1] : "thunderhead://localhost";
    if (th_client_open(url, NULL, &client, &error) != TH_OK) fail(&error);
    if (th_table_create(client, "jobs", 1, NULL, &jobs, &error) != TH_OK) fail(&error);
    for (at = 0; at < total; at++) {
        snprintf(key, sizeof(key), "job %ld", at);
        if (th_put(client, jobs, th_text(key), th_text("new"), NULL, NULL, &error) != TH_OK) {
            fail(&error);
        }
    }
    for (at = 0; at < WORKERS; at++) pthread_create(&workers[at], NULL, work, &jobs);
    for (at = 0; at < WORKERS; at++) {
        void *its = NULL;
        pthread_join(workers[at], &its);
        printf("worker %ld did %" PRIuPTR " jobs\n", at, (uintptr_t)its);
        done += (uintptr_t)its;
    }
    printf("%" PRIuPTR " of %ld jobs, each done once\n", done, total);
    if (th_table_drop(client, "jobs", NULL, &error) != TH_OK) fail(&error);
    th_client_free(client);
    return done == (uintptr_t)total ? 0 : 1;
}
