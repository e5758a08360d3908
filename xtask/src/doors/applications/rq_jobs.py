"""RQ: jobs in a queue, with a worker that starts again when it loses its server."""

import os
import subprocess
import sys

import common
from redis import Redis
from rq import Queue


def square(job, directory):
    common.Done(directory).add(job)
    return job * job


def main():
    port, count, directory = common.arguments()
    done = common.Done(directory)
    queue = Queue("jobs", connection=Redis(port=port))
    url = f"redis://127.0.0.1:{port}/0"
    words = ["worker", "jobs", "--url", url, "--worker-class", "rq.worker.SimpleWorker", "--quiet"]
    script = f'while true; do "$0" "$@"; sleep 0.2; done'
    program = os.path.join(os.path.dirname(sys.executable), "rq")
    with open(os.path.join(directory, "worker.log"), "w") as log:
        worker = subprocess.Popen(
            ["sh", "-c", script, program, *words], stdout=log, stderr=log,
            cwd=os.path.dirname(os.path.abspath(__file__)), start_new_session=True,
        )
        try:
            jobs = []
            for job in range(count):
                begin = lambda: queue.enqueue("rq_jobs.square", job, directory, result_ttl=3600)
                jobs.append(common.insist(begin))
                if job % 50 == 49:
                    common.say(f"begun {job + 1}")
            done.await_all(count)
        finally:
            os.killpg(worker.pid, 9)
            worker.wait()


if __name__ == "__main__":
    main()
