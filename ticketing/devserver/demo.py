"""`make demo`: starts the complete system from an installed environment, and ends it on Ctrl-C.

It starts the servers, then migrates and loads the demo events, then starts every process of the Procfile. Processes
left by an earlier run are ended first, so every start is the same. A process that dies is restarted.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import psutil

from ticketing import settings_parser
from ticketing.demo_state import STATE_FILE, clear_state, is_alive, started_at, write_state
from ticketing.devserver import postgres, processes, valkey
from ticketing.devserver.data_folder import ServerFolder, ServersFailed, prepare_folder
from ticketing.devserver.ports import LOOPBACK, free_port, is_free
from ticketing.devserver.postgres import Postgres
from ticketing.devserver.prepare import ADMIN, step
from ticketing.devserver.servers import Servers, keep_secrets
from ticketing.devserver.supervisor import RestartPolicy
from ticketing.devserver.valkey import Valkey

CHECKOUT = Path(__file__).resolve().parent.parent.parent
DEFAULT_PORT = 8000
MAILBOX = Path(".local") / "mail"
READY_SECONDS_MAX = 90
READY_POLL_SECONDS = 0.1
END_SECONDS_MAX = 25
LOOK_SECONDS = 1.0
# Every process of the demo has this variable in its environment, so that a later run finds those of a killed run.
MARK = "FAIRGATE_DEMO"
# DemoFailed has this message if the failed process has printed its own.
ALREADY_REPORTED = ""


class DemoFailed(Exception):
    """The demo cannot run; the message is one line for the user."""


class StopRequested(Exception):
    """A signal asked the demo to end."""


@dataclass
class Demo:
    checkout: Path
    port: int
    environment: dict[str, str] = field(default_factory=dict)
    place: ServerFolder | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    servers: Servers = field(default_factory=lambda: Servers(None, None))
    state: dict[str, str | int] = field(default_factory=dict)
    supervisor: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)
    try:
        with demo_lock(CHECKOUT):
            return _run(Demo(CHECKOUT, _wanted_port()))
    except (DemoFailed, ServersFailed) as error:
        return _fail(str(error))
    except StopRequested:
        return 0
    except BrokenPipeError:
        return 1  # The reader of our output is gone.
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _fail(f"the disk is full ({error.filename or CHECKOUT})")
        return _fail(f"{error.strerror}: {error.filename or CHECKOUT}")


def _fail(message: str) -> int:
    if message != ALREADY_REPORTED:
        print(f"make demo: {message}", file=sys.stderr, flush=True)
    return 1


def _on_signal(signum: int, frame: FrameType | None) -> None:
    raise StopRequested


def _run(demo: Demo) -> int:
    end_leftovers(demo)
    if not is_free(demo.port):
        raise DemoFailed(f"port {demo.port} is in use; choose another, as in PORT={demo.port + 123} make demo")
    try:
        _start_servers(demo)
        _prepare(demo)
        _start_processes(demo)
        _print_welcome(demo)
        return _wait_for_end(demo)
    except StopRequested:
        return 0
    finally:
        _end(demo)


def _wanted_port() -> int:
    text = os.environ.get("PORT") or str(DEFAULT_PORT)
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise DemoFailed(f"PORT={text} is not a port (1 to 65535)")
    port = int(text)
    try:
        is_free(port)
    except PermissionError as error:
        raise DemoFailed(
            f"this account may not listen on port {port}; choose another, as in PORT=8123 make demo"
        ) from error
    return port


@contextlib.contextmanager
def demo_lock(checkout: Path) -> Iterator[None]:
    """Hold this checkout's demo lock. The kernel releases it when the process ends, however it ends."""
    (checkout / ".local").mkdir(exist_ok=True)
    with open(checkout / ".local" / "demo.lock", "a+") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise DemoFailed(f"the demo of this checkout is already running{_running_address(checkout)}") from error
        yield


def _running_address(checkout: Path) -> str:
    try:
        return f" at {json.loads((checkout / STATE_FILE).read_text())['site_url']}"
    except (OSError, ValueError, KeyError):
        return ""  # It is still starting.


def end_leftovers(demo: Demo) -> None:
    """End the processes of an earlier run that was killed before it could end them."""
    clear_state(demo.checkout)
    left = len(_marked(demo.checkout))
    if left and not processes.end(lambda: _marked(demo.checkout), polite_seconds=10):
        raise DemoFailed("processes of an earlier run cannot be ended")
    if left:
        print(f"Ended {left} processes that an earlier run left behind.")


def _mark(checkout: Path) -> str:
    return hashlib.sha256(str(checkout).encode()).hexdigest()[:16]


def _marked(checkout: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error):  # It has ended or belongs to another account.
            if process.environ().get(MARK) == _mark(checkout) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _start_servers(demo: Demo) -> None:
    database_url, redis_url = _given_addresses()
    place = prepare_folder(demo.checkout)
    demo.place, demo.secrets = place, keep_secrets(place)
    print(f"Fairgate, at {demo.checkout}")
    if not (database_url and redis_url):
        _print_locations(demo, place)
    cluster = copy = None
    ports = _earlier_ports(place)
    if database_url:
        print(f"  PostgreSQL: {_without_password(database_url)} (DATABASE_URL)")
    else:
        with step("Starting PostgreSQL 18"):
            cluster = _start_postgres(demo, ports.get("postgres"))
        database_url = cluster.url()
    if redis_url:
        print(f"  Redis: {_without_password(redis_url)} (REDIS_URL)")
    else:
        with step("Starting Valkey 9"):
            copy = _start_valkey(demo, ports.get("valkey"))
        redis_url = copy.url
    demo.servers = Servers(cluster, copy)
    _remember_ports(place, demo.servers)
    _settle_environment(demo, database_url, redis_url)


def _start_postgres(demo: Demo, preferred_port: int | None) -> Postgres:
    assert demo.place
    return postgres.start(
        demo.place,
        password=demo.secrets["database_password"],
        superuser_password=demo.secrets["superuser_password"],
        preferred_port=preferred_port,
    )


def _start_valkey(demo: Demo, preferred_port: int | None) -> Valkey:
    assert demo.place
    return valkey.start(demo.place, password=demo.secrets["redis_password"], preferred_port=preferred_port)


def _print_locations(demo: Demo, place: ServerFolder) -> None:
    if place.account:
        print(f"  The servers run as {place.account.name}, because PostgreSQL does not run as root.")
    if place.folder.parent != demo.checkout / ".local":
        print(f"  Their data is in {place.folder}: {place.account.name if place.account else ''} cannot enter here.")


def _given_addresses() -> tuple[str | None, str | None]:
    """Return DATABASE_URL and REDIS_URL, None for empty ones. Raises DemoFailed for invalid ones."""
    database_url, redis_url = os.environ.get("DATABASE_URL") or None, os.environ.get("REDIS_URL") or None
    try:
        if database_url:
            settings_parser.parse_database_url("DATABASE_URL", database_url)
        if redis_url:
            settings_parser.parse_redis_url("REDIS_URL", redis_url)
    except settings_parser.InvalidSetting as error:
        raise DemoFailed(str(error)) from error
    return database_url, redis_url


def _settle_environment(demo: Demo, database_url: str, redis_url: str) -> None:
    site_port = free_port()
    # DATABASE_DIRECT_URL belongs to the given database, so it is ignored if the demo has its own.
    direct_url = (os.environ.get("DATABASE_DIRECT_URL") if not demo.servers.postgres else None) or database_url
    defaults = {
        "SECRET_KEY": demo.secrets["secret_key"],
        "ADMIN_PASSWORD": demo.secrets["admin_password"],
        "METRICS_TOKEN": demo.secrets["metrics_token"],
        "SITE_URL": demo.address,
        "MAILBOX_FOLDER": str(demo.checkout / MAILBOX),
        "DJANGO_SETTINGS_MODULE": "ticketing.settings",
        # All visitors of rehearsals and benchmarks have one address here.
        "RATE_LIMITS_EXEMPT": "127.0.0.0/8,::1",
        "ACCESS_LOG_SAMPLE": "0",  # Keeps the terminal readable.
        # End without waiting for browsers that keep their connections open.
        "WEB_FAREWELL_SECONDS": "0",
        # If root starts the demo, its worker runs as root too, and Celery would warn.
        "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",
    }
    demo.environment = {
        **defaults,
        **os.environ,
        "DATABASE_URL": database_url,
        "DATABASE_DIRECT_URL": direct_url,
        "REDIS_URL": redis_url,
        "PORT": str(demo.port),
        "SITE_PORT": str(site_port),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "PYTHONUNBUFFERED": "1",
        MARK: _mark(demo.checkout),
    }
    demo.state = {
        "database_url": database_url,
        "database_direct_url": direct_url,
        "redis_url": redis_url,
        "secret_key": demo.environment["SECRET_KEY"],
        "site_url": demo.environment["SITE_URL"],
        "web_port": demo.port,
        "site_port": site_port,
        "admin_password": demo.environment["ADMIN_PASSWORD"],
        "metrics_token": demo.environment["METRICS_TOKEN"],
        "mailbox_folder": demo.environment["MAILBOX_FOLDER"],
    }
    _write_state(demo)


def _write_state(demo: Demo) -> None:
    # With external servers, the state is valid as long as this process runs.
    write_state(demo.checkout, demo.state, demo.servers.pids or [os.getpid()])


def _prepare(demo: Demo) -> None:
    command = [sys.executable, "-m", "ticketing.devserver.prepare"]
    # Behind a pooler in transaction mode, a migration's session settings would apply to other clients.
    direct = {"DATABASE_URL": demo.environment["DATABASE_DIRECT_URL"]}
    quiet = {"LOG_LEVEL": "WARNING", **demo.environment, **direct}  # Only problems are printed between the steps.
    done = subprocess.run(command, cwd=demo.checkout, env=quiet, check=False)
    if done.returncode != 0:
        raise DemoFailed(ALREADY_REPORTED)


def _start_processes(demo: Demo) -> None:
    """Start the Procfile's processes and return once /readyz succeeds. Raises DemoFailed."""
    # Delete the metrics of an earlier run.
    shutil.rmtree(demo.checkout / ".local" / "metrics", ignore_errors=True)
    demo.supervisor = subprocess.Popen(
        [sys.executable, "-m", "ticketing.devserver.supervisor", str(demo.checkout / "Procfile")],
        cwd=demo.checkout,
        env=demo.environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C goes to this process only, which ends the others in order.
    )
    deadline = time.monotonic() + READY_SECONDS_MAX
    last = "no response"
    while time.monotonic() < deadline:
        if demo.supervisor.poll() is not None:
            raise DemoFailed("a process ended before it was ready (see above)")
        try:
            with _without_proxy().open(f"{demo.address}/readyz", timeout=2) as response:
                if response.status == 200:
                    return
        except urllib.error.HTTPError as error:
            last = f"{error.code} {error.read(200).decode(errors='replace').strip()}"
            error.close()
        except OSError as error:
            last = str(error)  # Not listening yet.
        time.sleep(READY_POLL_SECONDS)
    raise DemoFailed(f"the system was not ready after {READY_SECONDS_MAX} s; /readyz: {last}")


def _without_proxy() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _print_welcome(demo: Demo) -> None:
    token = demo.environment["METRICS_TOKEN"]
    lines = [
        f"Fairgate is running: {demo.environment['SITE_URL']}",
        f"Shop as a visitor:   {demo.address}{_shopper_path(demo)}",
        f"Admin:               {demo.address}/admin/  ({ADMIN} / {demo.environment['ADMIN_PASSWORD']})",
        *([] if demo.environment.get("EMAIL_URL") else [f"Mailbox:             {demo.address}/demo/mailbox"]),
        f"Metrics:             curl -H 'Authorization: Bearer {token}' {demo.address}/metrics",
        "Press Ctrl-C to stop.",
    ]
    width = max(map(len, lines))
    print("\n" + "─" * width + "\n" + "\n".join(lines) + "\n" + "─" * width, flush=True)


def _shopper_path(demo: Demo) -> str:
    """Return the path of an event that is on sale, or of the catalog if there is none."""
    try:
        with _without_proxy().open(f"{demo.address}/api/events", timeout=5) as response:
            listed = json.load(response)
    except (OSError, ValueError):
        return "/"
    for event in listed.get("events", []) if isinstance(listed, dict) else []:
        if event.get("status") == "on_sale" and event.get("event_id"):
            return f"/events/{event['event_id']}/"
    return "/"


def _wait_for_end(demo: Demo) -> int:
    assert demo.supervisor
    servers = [
        _RestartingServer(name, server, start)
        for name, server, start in (
            ("PostgreSQL", demo.servers.postgres, partial(_start_postgres, demo)),
            ("Valkey", demo.servers.valkey, partial(_start_valkey, demo)),
        )
        if server
    ]
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            demo.supervisor.wait(timeout=LOOK_SECONDS)
            raise DemoFailed("a process keeps failing, so the demo was stopped (see above)")
        revived = [server.name for server in servers if server.revive()]
        if revived:
            by_name = {server.name: server.running for server in servers}
            demo.servers = Servers(by_name.get("PostgreSQL"), by_name.get("Valkey"))
            _write_state(demo)


class _RestartingServer:
    """A server that is restarted when it dies. Its address stays the same, so clients reconnect."""

    def __init__(self, name: str, running: Any, start: Callable[[int], Any]) -> None:
        self.name, self.running, self._start = name, running, start
        self._started = started_at(running.pid)
        self._restart_policy = RestartPolicy(time.monotonic())

    def revive(self) -> bool:
        """Restart the server if it died and return whether it did. Raises DemoFailed if it dies too often or lost its
        port."""
        if is_alive(self.running.pid, self._started):
            return False
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.running.pid, os.WNOHANG)
        if not self._restart_policy.allows(time.monotonic(), killed=True):
            raise DemoFailed(f"{self.name} keeps failing, so the demo was stopped; run make demo to start again")
        _print_safely(f"{self.name} died; restarting it …")
        port = self.running.port
        self.running = self._start(port)
        self._started = started_at(self.running.pid)
        if self.running.port != port:
            raise DemoFailed(f"{self.name} died and another program took its port {port}; run make demo to start again")
        _print_safely(f"{self.name} is running again.")
        return True


def _end(demo: Demo) -> None:
    """End the Procfile's processes, then the servers. Ignores further signals."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _print_safely("\nStopping …")
    if demo.supervisor and demo.supervisor.poll() is None:
        demo.supervisor.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            demo.supervisor.wait(timeout=END_SECONDS_MAX)
    processes.end(lambda: _marked(demo.checkout), polite_seconds=5)
    clear_state(demo.checkout)
    if demo.place:
        valkey.stop(demo.place)
        postgres.stop(demo.place)
    _print_safely("Stopped.")


def _print_safely(text: str) -> None:
    """Print, or continue without output: a closed terminal must not keep the servers running."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _earlier_ports(place: ServerFolder) -> dict[str, int]:
    try:
        known = json.loads((place.folder / "ports.json").read_text())
    except (OSError, ValueError):
        return {}
    return {name: port for name, port in known.items() if isinstance(port, int)} if isinstance(known, dict) else {}


def _remember_ports(place: ServerFolder, servers: Servers) -> None:
    # Every start uses the same ports if they are free, so that bookmarked addresses keep working.
    running = {"postgres": servers.postgres, "valkey": servers.valkey}
    known = _earlier_ports(place) | {name: server.port for name, server in running.items() if server}
    (place.folder / "ports.json").write_text(json.dumps(known))


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


if __name__ == "__main__":
    sys.exit(main())
