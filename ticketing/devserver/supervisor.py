"""The Procfile's processes in the foreground, each started again when it dies.

`python -m ticketing.devserver.supervisor`: honcho starts and prints; what it does not do is
keep a house open when one of its processes is killed.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from ctypes import c_byte
from pathlib import Path
from typing import Any

from honcho import manager
from honcho.environ import parse_procfile
from honcho.printer import Printer
from honcho.process import Process

# A process that ends by itself younger than this at its first start cannot start; another try would only say it again.
FIRST_LIFE_SECONDS_MIN = 5.0
RESTARTS_MAX = 5
RESTARTS_WITHIN_SECONDS = 60.0
PAUSE_SECONDS = 1.0
# Told to end, the slowest (the worker with a delivery at hand) gets this long before it is killed.
END_SECONDS_MAX = 20


class RestartPolicy:
    """How often one process may be started again. Times are of a monotonic clock, in seconds."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._restarts: list[float] = []

    def allows(self, now: float, *, killed: bool) -> bool:
        """Tells whether a process that died now, by somebody's signal or by itself, is started again; counts it."""
        if not killed and not self._restarts and now - self._started < FIRST_LIFE_SECONDS_MIN:
            return False
        self._restarts = [at for at in self._restarts if now - at < RESTARTS_WITHIN_SECONDS]
        if len(self._restarts) >= RESTARTS_MAX:
            return False
        self._restarts.append(now)
        return True


class RestartingProcess(Process):
    """A process that comes back: its `run` returns when the house ends or when it dies too often."""

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:
        """Runs the command until the house ends; each new life is told to the manager, which signals it by its id."""
        if ignore_signals:
            # A handler that does nothing, rather than none: what is ignored here would be ignored by every child too.
            signal.signal(signal.SIGINT, lambda *_: None)
            signal.signal(signal.SIGTERM, lambda *_: None)
        self._events = events
        patience = RestartPolicy(time.monotonic())
        while True:
            status = self._run_once()
            if _is_shutting_down():
                break
            ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
            if not patience.allows(time.monotonic(), killed=status < 0):
                self._log(f"ended ({ended}) and is not started again, so the house ends")
                break
            self._log(f"ended ({ended}); starting it again")
            time.sleep(PAUSE_SECONDS)
            if _is_shutting_down():
                break
        self._send_message({"returncode": status}, type="stop")

    def _run_once(self) -> int:
        child = self._child_ctor(self.cmd, env=self.env, cwd=self.cwd)
        self._send_message({"pid": child.pid}, type="start")
        if _is_shutting_down():
            child.terminate()  # The manager told everybody to end while this one was between two lives.
        # Beside us: what the dead one had started itself still holds the pipe that we read, its port and its tasks.
        threading.Thread(target=_reap, args=(child,)).start()
        for line in iter(child.stdout.readline, b""):
            self._send_message(line)
        child.stdout.close()
        return int(child.wait())

    def _log(self, text: str) -> None:
        self._send_message(f"{self.name} {text}\n".encode())


def _reap(child: Any) -> None:
    child.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


class ProcessManager(manager.Manager):
    def terminate(self) -> None:
        """Everybody is told to end; whoever dies from now on stays dead."""
        _shutdown_flag[0] = 1
        super().terminate()

    def _killall(self, force: bool = False) -> None:
        send = self._procmgr.kill if force else self._procmgr.terminate
        for known in self._processes.values():
            if "pid" in known and "returncode" not in known:
                send(known["pid"])


# Shared with every process that keeps one; a single byte needs no lock, and a signal handler must not wait for one.
_shutdown_flag = multiprocessing.get_context("fork").RawArray(c_byte, 1)


def _is_shutting_down() -> bool:
    return bool(_shutdown_flag[0])


def main(procfile: Path) -> int:
    """Runs every process of the Procfile until one cannot be kept or somebody asks for the end; their exit status."""
    multiprocessing.set_start_method("fork")
    manager.KILL_WAIT = END_SECONDS_MAX
    house = ProcessManager(Printer(sys.stdout))
    house._process_ctor = RestartingProcess
    for name, command in parse_procfile(procfile.read_text()).processes.items():
        house.add_process(name, command)
    house.loop()
    return int(house.returncode or 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
