"""A Valkey 9 server. It holds only data that may be lost, so it writes nothing to disk."""

import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from ticketing.devserver import processes
from ticketing.devserver.data_folder import ServerFolder, ServersFailed, find_error_line
from ticketing.devserver.ports import LOOPBACK, free_port

START_SECONDS_MAX = 20
STOP_SECONDS_MAX = 10
PORT_ATTEMPTS_MAX = 5
ANSWER_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Valkey:
    """A running server on a loopback port, protected by a password."""

    place: ServerFolder
    pid: int
    port: int
    password: str

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/0"

    def stop(self) -> None:
        stop(self.place)


def start(place: ServerFolder, *, password: str, preferred_port: int | None = None) -> Valkey:
    """End a server that an earlier run left, start a new, empty one and return it. Raises ServersFailed."""
    stop(place)
    if not place.valkey_data.exists():
        place.valkey_data.mkdir(mode=0o700)
        place.give(place.valkey_data)
    log = place.valkey_data / "valkey.log"
    for _ in range(PORT_ATTEMPTS_MAX):
        port = free_port(preferred_port)
        configuration = _write_configuration(place, port, password)
        log.unlink(missing_ok=True)
        process = subprocess.Popen(
            [place.valkey_server, configuration],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal must not reach it: we stop it in order.
            **place.popen_options(),
        )
        if _wait_until_ready(process, port, password):
            # Only its process id is needed from here on. It may outlive us, so we do not wait for it.
            process.returncode = 0
            return Valkey(place, process.pid, port, password)
        process.kill()
        process.wait()
        output = log.read_text(errors="replace") if log.exists() else ""
        if "Address already in use" not in output:
            raise ServersFailed(f"Valkey did not start: {find_error_line(output)} ({log})")
        preferred_port = None
    raise ServersFailed(f"Valkey found no free port in {PORT_ATTEMPTS_MAX} attempts")


def stop(place: ServerFolder) -> None:
    """Stop the folder's server if one runs, also one that an earlier run left."""
    if not processes.end(lambda: _processes_of(place), polite_seconds=STOP_SECONDS_MAX):
        raise ServersFailed(f"Valkey in {place.valkey_data} cannot be stopped")


def _write_configuration(place: ServerFolder, port: int, password: str) -> Path:
    lines = [
        f"bind {LOOPBACK}",
        f"port {port}",
        f"requirepass {password}",
        f'dir "{place.valkey_data}"',
        'logfile "valkey.log"',
        "daemonize no",
        'save ""',
        "appendonly no",
        "tcp-backlog 511",
    ]
    path = place.valkey_data / "valkey.conf"
    place.write_private(path, "\n".join(lines) + "\n")
    return path


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, password: str) -> bool:
    """Wait until the server responds to PING. Return False if it ended or did not respond in time."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection((LOOPBACK, port), timeout=1) as connection:
                connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
                response = b""
                while response.count(b"\r\n") < 2 and (read := connection.recv(100)):
                    response += read
            if response == b"+OK\r\n+PONG\r\n":
                return True
        except OSError:
            pass  # Not listening yet.
        time.sleep(ANSWER_POLL_SECONDS)
    return False


def _processes_of(place: ServerFolder) -> list[psutil.Process]:
    return processes.working_in(place.valkey_data, "valkey-server")
