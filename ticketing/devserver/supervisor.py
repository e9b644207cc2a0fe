"""Runs the Procfile's processes in the foreground and restarts each one that dies.

`python -m ticketing.devserver.supervisor`: honcho starts the processes and prints their output; this module adds the
restarts.
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

# A process that exits by itself this soon after its first start cannot run; a restart would only repeat the error.
FIRST_LIFE_SECONDS_MIN = 5.0
RESTARTS_MAX = 5
RESTARTS_WITHIN_SECONDS = 60.0
PAUSE_SECONDS = 1.0
# At the end, processes have this long before they are killed; a worker with a delivery in progress takes the longest.
END_SECONDS_MAX = 20


class RestartPolicy:
    """Limits the restarts of one process. Times are from a monotonic clock, in seconds."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._restarts: list[float] = []

    def allows(self, now: float, *, killed: bool) -> bool:
        """Return whether a process that died now is restarted, and count it. `killed`: whether a signal ended it."""
        if not killed and not self._restarts and now - self._started < FIRST_LIFE_SECONDS_MIN:
            return False
        self._restarts = [at for at in self._restarts if now - at < RESTARTS_WITHIN_SECONDS]
        if len(self._restarts) >= RESTARTS_MAX:
            return False
        self._restarts.append(now)
        return True


class RestartingProcess(Process):
    """A process that is restarted. Its `run` returns when the supervisor ends or when it dies too often."""

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:
        """Run the command until the supervisor ends. Each new process id is sent to the manager, which signals it."""
        if ignore_signals:
            # A handler that does nothing, because every child would inherit SIG_IGN.
            signal.signal(signal.SIGINT, lambda *_: None)
            signal.signal(signal.SIGTERM, lambda *_: None)
        self._events = events
        policy = RestartPolicy(time.monotonic())
        while True:
            status = self._run_once()
            if _is_shutting_down():
                break
            ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
            if not policy.allows(time.monotonic(), killed=status < 0):
                self._log(f"ended ({ended}) and is not restarted, so all processes are stopped")
                break
            self._log(f"ended ({ended}); restarting it")
            time.sleep(PAUSE_SECONDS)
            if _is_shutting_down():
                break
        self._send_message({"returncode": status}, type="stop")

    def _run_once(self) -> int:
        child = self._child_ctor(self.cmd, env=self.env, cwd=self.cwd)
        self._send_message({"pid": child.pid}, type="start")
        if _is_shutting_down():
            child.terminate()  # The manager ended all processes while this one was being restarted.
        # Reap in a thread: children of a dead process may keep its port, its tasks and the pipe that this loop reads.
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
        """End all processes; those that die from now on are not restarted."""
        _shutdown_flag[0] = 1
        super().terminate()

    def _killall(self, force: bool = False) -> None:
        send = self._procmgr.kill if force else self._procmgr.terminate
        for known in self._processes.values():
            if "pid" in known and "returncode" not in known:
                send(known["pid"])


# Shared with all restarting processes. A single byte needs no lock, and a signal handler must not wait for one.
_shutdown_flag = multiprocessing.get_context("fork").RawArray(c_byte, 1)


def _is_shutting_down() -> bool:
    return bool(_shutdown_flag[0])


def main(procfile: Path) -> int:
    """Run every process of the Procfile until one keeps failing or a signal arrives. Return the exit status."""
    multiprocessing.set_start_method("fork")
    manager.KILL_WAIT = END_SECONDS_MAX
    processes = ProcessManager(Printer(sys.stdout))
    processes._process_ctor = RestartingProcess
    for name, command in parse_procfile(procfile.read_text()).processes.items():
        processes.add_process(name, command)
    processes.loop()
    return int(processes.returncode or 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
