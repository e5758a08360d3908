/* A temporary store for tests: a process of `thunderhead dev`. */
#ifndef SERVER_H
#define SERVER_H

#ifdef __cplusplus
extern "C" {
#endif

#include <sys/types.h>

typedef struct test_server {
    pid_t pid;
    char url[256];
} test_server;

/* Starts a store and waits until it serves. The environment variable THUNDERHEAD names the program.
 * Ends the test with status 77, which means "skipped", if it is not set. `directory` is NULL for a
 * store without files; else the store keeps its data there. `listen` is NULL for a free port. */
test_server server_start(const char *directory, const char *listen);

/* Asks the store to end, and waits until it has. */
void server_stop(test_server *server);

/* Kills the store, and waits until it is gone. */
void server_kill(test_server *server);

#ifdef __cplusplus
}
#endif

#endif
