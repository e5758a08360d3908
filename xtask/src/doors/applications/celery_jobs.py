"""Celery: tasks with late acknowledgement, and their results in the result backend."""

import os
import subprocess
import sys

import common
from celery import Celery

port, count, directory = (
    common.arguments() if len(sys.argv) == 4 and sys.argv[1].isdigit()
    else (int(os.environ["JOBS_PORT"]), 0, os.environ["JOBS_DIRECTORY"])
)
done = common.Done(directory)
app = Celery(
    "celery_jobs",
    broker=f"redis://127.0.0.1:{port}/0",
    backend=f"redis://127.0.0.1:{port}/1",
)
app.conf.update(
    task_acks_late=True,
    broker_connection_max_retries=None,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 5},
    task_publish_retry=False,
    worker_prefetch_multiplier=4,
)


@app.task(name="square")
def square(job):
    done.add(job)
    return job * job


def main():
    environment = {**os.environ, "JOBS_PORT": str(port), "JOBS_DIRECTORY": directory}
    words = ["-A", "celery_jobs", "worker", "--concurrency", "2", "--loglevel", "ERROR"]
    with open(os.path.join(directory, "worker.log"), "w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", *words],
            env=environment, stdout=log, stderr=log, cwd=os.path.dirname(os.path.abspath(__file__)),
        )
        try:
            results = []
            for job in range(count):
                results.append(common.insist(lambda: square.delay(job)))
                if job % 50 == 49:
                    common.say(f"begun {job + 1}")
            done.await_all(count)
            for job, result in enumerate(results):
                found = common.insist(lambda: result.get(timeout=20))
                assert found == job * job, (job, found)
        finally:
            worker.kill()
            worker.wait()


if __name__ == "__main__":
    main()
