"""Rehearsal of a flash sale: a separate demo, simulated visitors, Redis flushed halfway, and all results verified.

    python -m benchmarks.rehearsals.flash_sale [--visitors 5000] [--over 40] [--buyers 10%] [--keep]

Copies the checkout to a temporary folder, starts its demo on a free port, sends simulated visitors to Solstice Fields
(50 per second, 500 at once), flushes Redis once half of them are admitted, and then runs `verify_queue`, `audit` and a
check of the caps against the ledger. Exit status 1 if any of them fails. `--keep` keeps the folder. It can run beside
another demo, and ends only what it started.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from redis import Redis

from tests.processes.devserver.conftest import copy_checkout
from tests.support.servers import environment_without_run
from ticketing.demo_state import read_state
from ticketing.devserver.data_folder import prepare_folder
from ticketing.devserver.ports import free_port

EVENT, RATE, ACTIVE = "solstice-fields", 50, 500
READY_LINE = "Press Ctrl-C to stop."
END_SECONDS_MAX = 60
POLL_SECONDS = 0.5
_ADMITTED = "SELECT count(*) FROM queue_queueentry WHERE ready_at IS NOT NULL"
# The most admissions within any second that begins with a batch, and the most active visitors.
_CAPS = """
SELECT max((SELECT sum(later.count) FROM queue_admissionbatch AS later
            WHERE later.event_id = batch.event_id AND later.at >= batch.at AND later.at < batch.at + interval '1 s')),
       max(batch.active_count)
FROM queue_admissionbatch AS batch
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visitors", type=int, default=5_000)
    parser.add_argument("--over", default="40")
    parser.add_argument("--buyers", default="10%")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    # End in order on SIGTERM, together with the demo.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="fairgate-rehearsal-"))
    folder.chmod(0o755)  # The servers may run as another account.
    copy_checkout(folder)
    try:
        with open_demo(folder):
            return rehearse(folder, options.visitors, options.over, options.buyers)
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            data = prepare_folder(folder).folder
            shutil.rmtree(folder)
            shutil.rmtree(data, ignore_errors=True)


def rehearse(folder: Path, visitors: int, over: str, buyers: str) -> int:
    state = read_state(folder)
    assert state is not None
    simulator = manage(
        folder, "simulate", EVENT, "--visitors", str(visitors), "--over", over, "--buyers", buyers,
        "--rate", str(RATE), "--active", str(ACTIVE),
    )  # fmt: skip
    with ended(simulator), psycopg.connect(state["database_url"], autocommit=True) as ledger:
        while simulator.poll() is None:
            ((admitted,),) = ledger.execute(_ADMITTED).fetchall()
            if admitted >= visitors // 2:
                with Redis.from_url(state["redis_url"]) as redis:
                    redis.flushall()
                print(f"--- flushed Redis with {admitted:,} admitted", flush=True)
                break
            time.sleep(POLL_SECONDS)
        found = {"simulate": simulator.wait()}
        ((in_a_second, at_once),) = ledger.execute(_CAPS).fetchall()
    print(f"--- in the ledger: at most {in_a_second} admitted within a second, {at_once} inside at once")
    # A second's admissions, plus half a second's that may be saved up.
    found["caps"] = int(at_once > ACTIVE or in_a_second > RATE * 1.5)
    for command in (["verify_queue", EVENT], ["audit"]):
        print(f"--- {command[0]}", flush=True)
        found[command[0]] = manage(folder, *command).wait()
    print("--- " + ", ".join(f"{name} {'FAILED' if failed else 'ok'}" for name, failed in found.items()))
    return int(any(found.values()))


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the process after the block, if it is still running."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(END_SECONDS_MAX)


def manage(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "manage.py", *words], cwd=folder, env=environment_without_run())


@contextmanager
def open_demo(folder: Path) -> Iterator[None]:
    """Run the demo of this folder until the block ends."""
    demo = subprocess.Popen(
        [sys.executable, "-u", "-m", "ticketing.devserver.demo"],
        cwd=folder,
        env={**environment_without_run(), "PORT": str(free_port())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    output: list[str] = []
    assert demo.stdout
    try:
        for line in demo.stdout:
            output.append(line.rstrip())
            if READY_LINE in line:
                break
        else:
            raise SystemExit("\n".join(output))
        # Keep reading, because a full pipe would block the demo; its emails and warnings go to a file.
        with (folder / "demo.log").open("w") as log:
            reader = threading.Thread(target=lambda: log.writelines(demo.stdout or []), daemon=True)
            reader.start()
            yield
            os.kill(demo.pid, signal.SIGINT)
            demo.wait(END_SECONDS_MAX)
            reader.join(END_SECONDS_MAX)
    finally:
        if demo.poll() is None:
            demo.terminate()
            demo.wait(END_SECONDS_MAX)
        demo.stdout.close()


if __name__ == "__main__":
    sys.exit(main())
