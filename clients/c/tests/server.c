#include "server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *why) {
    fprintf(stderr, "the store did not start: %s\n", why);
    exit(1);
}

test_server server_start(const char *directory, const char *listen) {
    test_server started;
    memset(&started, 0, sizeof(started));
    const char *program = getenv("THUNDERHEAD");
    if (!program) {
        fprintf(stderr, "THUNDERHEAD does not name the program\n");
        exit(77);
    }
    int lines[2];
    if (pipe(lines) != 0) fail("no pipe");
    const pid_t test = getpid();
    started.pid = fork();
    if (started.pid < 0) fail("no process");
    if (started.pid == 0) {
        /* The store ends with the test, also if the test crashes. */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != test) _exit(1);
        dup2(lines[1], STDOUT_FILENO);
        close(lines[0]);
        close(lines[1]);
        if (directory) {
            execl(program, program, "dev", "--json", "--memory", "64MiB", "--data", directory,
                  "--listen", listen, (char *)NULL);
        } else {
            execl(program, program, "dev", "--ephemeral", "--json", (char *)NULL);
        }
        _exit(127);
    }
    close(lines[1]);
    FILE *output = fdopen(lines[0], "r");
    char line[1024];
    if (!output || !fgets(line, sizeof(line), output)) fail("it said nothing");
    const char *start = strstr(line, "\"coordinators\":[\"");
    if (!start) fail(line);
    start += strlen("\"coordinators\":[\"");
    snprintf(started.url, sizeof(started.url), "thunderhead://%.*s/", (int)strcspn(start, "\""),
             start);
    /* The pipe stays open: a store whose output fails would end. */
    return started;
}

static void end(test_server *server, int signal) {
    kill(server->pid, signal);
    int status;
    while (waitpid(server->pid, &status, 0) < 0) {
    }
    server->pid = 0;
}

void server_stop(test_server *server) {
    end(server, SIGTERM);
}

void server_kill(test_server *server) {
    end(server, SIGKILL);
}
