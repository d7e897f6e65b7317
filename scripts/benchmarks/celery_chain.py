"""The bare Celery that jobs are compared with: a chain of three empty tasks for each job, and nothing else.

    python celery_chain.py JOBS THREADS FOLDER

Broker, worker and settings are those of voicejobs (voicejobs.tasks.app.configure): Valkey on a unix socket, the
threads pool, no results. The process that runs this is the producer; it starts the broker and the worker, and ends
them. PYTHONPATH holds the checkout.
"""

import itertools
import subprocess
import sys
import time
from pathlib import Path

from celery import Celery, chain, signals

from tests.servers.valkey import Valkey
from voicejobs.messages import QUEUE_CLASSES, queue_name
from voicejobs.tasks.app import configure

TASKS = ("first", "second", "third")
WAIT_S = 1800


def application(broker_url: str) -> Celery:
    """Return the application, with our delivery rules and three empty tasks."""
    app = Celery("bare", set_as_current=False)
    configure(app, broker_url)
    for name in TASKS:
        app.task(name=f"bare.{name}", ignore_result=True)(_nothing)
    return app


def _nothing(job_id: str, step_run_id: str) -> None:
    """Do nothing with what a step of voicejobs gets."""


def work(broker_url: str, jobs: str, threads: str, done: str) -> None:
    """Run the worker; write the file `done` when the last task of the last job has run."""
    app = application(broker_url)
    count = itertools.count(1)

    @signals.task_postrun.connect(weak=False)
    def look(task: object, **kwargs: object) -> None:
        if getattr(task, "name", "") == "bare.third" and next(count) == int(jobs):
            Path(done).touch()

    queues = ",".join(queue_name(name) for name in QUEUE_CLASSES)
    options = ["--pool=threads", f"--concurrency={threads}", f"--queues={queues}", "--loglevel=WARNING"]
    app.worker_main(["worker", *options, "--without-gossip", "--without-mingle"])


def produce(app: Celery, jobs: int) -> None:
    """Send the chain of every job."""
    for number in range(jobs):
        ids = (f"job_{number:032x}", f"run_{number:032x}")
        chain(*(app.signature(f"bare.{name}", args=ids, immutable=True) for name in TASKS)).apply_async()


def main(jobs: str, threads: str, folder: str) -> None:
    """Start broker and worker, produce, wait for the last task, end both."""
    done = Path(folder, "done")
    broker = Valkey().start()
    try:
        url = broker.broker_url()
        worker = subprocess.Popen([sys.executable, __file__, "--work", url, jobs, threads, str(done)])
        try:
            started = time.monotonic()
            app = application(url)
            produce(app, int(jobs))
            while not done.exists():
                if worker.poll() is not None or time.monotonic() > started + WAIT_S:
                    sys.exit("the worker ended, or the tasks did not")
                time.sleep(0.1)
            Path(folder, "seconds").write_text(str(time.monotonic() - started))
        finally:
            worker.terminate()
            worker.wait()
    finally:
        broker.close()


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
