"""The demo in a copy of this checkout: it starts, reports errors in one line, and ends however it is killed."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.processes.devserver.conftest import copy_checkout
from tests.support.servers import environment_without_run
from ticketing.demo_state import read_state
from ticketing.devserver import demo as demos
from ticketing.devserver import postgres, valkey
from ticketing.devserver.data_folder import ServerFolder, prepare_folder
from ticketing.devserver.ports import free_port, is_free
from ticketing.devserver.processes import end, wait_gone
from ticketing.devserver.servers import Servers

READY_SECONDS_MAX = 240
"""A limit for a demo that starts beside the longest tests. No passing test waits this long."""
WAIT_SECONDS_MAX = 150
OPEN = "Press Ctrl-C to stop."


@pytest.fixture(scope="module")
def copied_checkout() -> Iterator[Path]:
    """A copy of this checkout that other users may enter, with an empty `.local/`."""
    folder = Path(tempfile.mkdtemp(prefix="fairgate-demo-"))
    folder.chmod(0o755)
    copy_checkout(folder)
    yield folder
    end(lambda: left_in(folder), polite_seconds=5)
    server_folder = prepare_folder(folder)
    valkey.stop(server_folder)
    postgres.stop(server_folder)
    if server_folder.folder.is_relative_to(folder):
        shutil.rmtree(folder)
    else:
        shutil.rmtree(server_folder.folder)
        shutil.rmtree(folder)


def left_in(checkout: Path) -> list[psutil.Process]:
    """Return every running process that works in the checkout: the demo's and, below `.local/`, the servers'."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(checkout) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, ValueError):
            continue
    return found


def environment(port: int, **more: str) -> dict[str, str]:
    # One of each is enough here, and starts sooner. tests/processes/server covers several.
    few = {"WEB_WORKERS": "1", "SITE_WORKERS": "1"}
    return {**environment_without_run(), **few, "PORT": str(port), **more}


DEMO = [sys.executable, "-u", "-m", "ticketing.devserver.demo"]


@contextmanager
def running(checkout: Path, port: int, **more: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The running demo and its output so far. Killed if the block leaves it running."""
    demo = subprocess.Popen(
        DEMO,
        cwd=checkout,
        env=environment(port, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )

    def give_up() -> None:
        # Its processes have the other end of the pipe too: reading would never end.
        demo.kill()
        end(lambda: left_in(checkout), polite_seconds=0)

    watchdog = threading.Timer(READY_SECONDS_MAX, give_up)
    watchdog.start()
    output: list[str] = []
    assert demo.stdout
    try:
        for line in demo.stdout:
            output.append(line.rstrip())
            if OPEN in line:
                break
        assert OPEN in output, "\n".join(output[-40:])
        watchdog.cancel()
        # Keep reading: a full pipe would block the demo.
        reader = threading.Thread(target=lambda: output.extend(demo.stdout or []), daemon=True)
        reader.start()
        yield demo, output
    finally:
        watchdog.cancel()
        if demo.poll() is None:
            demo.kill()
        demo.wait(WAIT_SECONDS_MAX)
        end(lambda: left_in(checkout), polite_seconds=5)
        demo.stdout.close()


class SharedDemo:
    """The demo that the tests of this module hand on, because each start takes a quarter of a minute."""

    def __init__(self, checkout: Path) -> None:
        self.checkout, self.port = checkout, free_port()
        self.output: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._starts = ExitStack()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[str]:
        """The running demo, started if none runs."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        assert self._process
        return self._process

    def start(self) -> None:
        """Start the demo again, over whatever the last one left."""
        self._process, self.output = self._starts.enter_context(running(self.checkout, self.port))

    def kill(self) -> None:
        """Kill the demo's own process, and none that it has started."""
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        """Wait until the demo has ended; return its exit status."""
        assert self._process
        return self._process.wait(WAIT_SECONDS_MAX)

    def end(self) -> None:
        self._starts.close()


@pytest.fixture(scope="module")
def shared(copied_checkout: Path) -> Iterator[SharedDemo]:
    """The demo in the copy; each test leaves it running or ended."""
    demo = SharedDemo(copied_checkout)
    yield demo
    demo.end()


@pytest.fixture
def checkout(shared: SharedDemo) -> Path:
    """The copy, in which no demo runs."""
    shared.end()
    return shared.checkout


def refused(checkout: Path, **environment_of: str) -> str:
    """Run a demo that cannot start, and return its last output, checked to be one line without a traceback."""
    done = subprocess.run(
        DEMO,
        cwd=checkout,
        env={**environment_without_run(), **environment_of},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=READY_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def get(url: str, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as response:
        return response.status, response.read()


def manage(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=checkout,
        env=environment_without_run(),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=False,
    )


def test_the_demo_starts_and_responds(shared: SharedDemo) -> None:
    assert shared.process.poll() is None
    output, address, checkout = shared.output, shared.address, shared.checkout
    assert f"Fairgate is running: {address}" in output
    (path,) = [line.partition(address)[2] for line in output if line.startswith("Shop as a visitor")]
    assert get(address + path)[0] == 200
    assert json.loads(get(f"{address}/healthz")[1])["status"] == "ok"
    assert json.loads(get(f"{address}/readyz")[1])["status"] == "ok"
    assert path.startswith("/events/")
    (command,) = [shlex.split(line.partition(":")[2]) for line in output if line.startswith("Metrics")]
    assert command[:2] == ["curl", "-H"]
    name, _, token = command[2].partition(": ")
    assert get(command[3], **{name: token})[0] == 200
    assert token == f"Bearer {(read_state(checkout) or {})['metrics_token']}"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get(command[3])

    audit = manage(checkout, "audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert f"already running at {address}" in refused(checkout, PORT=str(free_port()))


def test_processes_left_by_a_killed_demo_are_ended_by_the_next_run(shared: SharedDemo) -> None:
    shared.kill()
    left = left_in(shared.checkout)
    assert len(left) > 5
    shared.start()
    assert any("left behind" in line for line in shared.output)
    assert not {process.pid for process in left} & {process.pid for process in left_in(shared.checkout)}


def test_after_kill_9_of_everything_the_next_run_starts_with_the_same_data(shared: SharedDemo) -> None:
    assert shared.process.poll() is None
    admin = next(line for line in shared.output if line.startswith("Admin"))
    secret = read_state(shared.checkout)
    for process in left_in(shared.checkout):
        with suppress(psutil.NoSuchProcess):  # It may have ended with its parent.
            process.kill()
    shared.wait()
    assert wait_gone(lambda: left_in(shared.checkout), WAIT_SECONDS_MAX)
    shared.start()
    assert next(line for line in shared.output if line.startswith("Admin")) == admin
    state = read_state(shared.checkout)
    assert state
    assert secret
    assert state["secret_key"] == secret["secret_key"]
    assert get(f"{shared.address}/readyz")[0] == 200


def test_processes_that_die_under_a_running_demo_are_restarted_at_the_same_address(shared: SharedDemo) -> None:
    """In the end the demo leaves no process."""
    demo, checkout = shared.process, shared.checkout
    before = read_state(checkout)
    (relay,) = [process for process in left_in(checkout) if process.cmdline()[-1:] == ["relay"]]
    servers = [process for process in left_in(checkout) if is_server(process)]
    assert {process.name() for process in servers} == {"postgres", "valkey-server"}
    for process in (relay, *servers):
        process.kill()
    wanted = {
        "relay ended (killed by signal 9); restarting it",
        "PostgreSQL is running again.",
        "Valkey is running again.",
    }
    assert until(lambda: all(any(words in line for line in shared.output) for words in wanted)), "\n".join(
        shared.output
    )
    # The message is printed just before the server's new process is written to the state file.
    assert until(lambda: read_state(checkout) == before)
    assert until(lambda: readiness(shared.port) == "ok")
    assert until(lambda: any(process.cmdline()[-1:] == ["relay"] for process in left_in(checkout)))
    assert manage(checkout, "audit").returncode == 0
    assert demo.poll() is None
    demo.send_signal(signal.SIGTERM)
    assert shared.wait() == 0
    assert left_in(checkout) == []
    assert read_state(checkout) is None
    assert is_free(shared.port)
    assert not any("SIGKILL" in line or "rc=-9" in line for line in shared.output)


def is_server(process: psutil.Process) -> bool:
    """Return whether this is one of the two servers, and not a child process of PostgreSQL."""
    try:
        parent = process.parent()
        return process.name() in ("postgres", "valkey-server") and (parent is None or parent.name() != "postgres")
    except psutil.NoSuchProcess:
        return False


def readiness(port: int) -> str:
    try:
        return str(json.loads(get(f"http://127.0.0.1:{port}/readyz")[1])["status"])
    except OSError:
        return "no answer"


def until(holds: Callable[[], bool]) -> bool:
    """Wait until the condition holds; return whether it did in time."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.1)
    return True


def test_servers_given_by_url_are_used_and_left_running(checkout: Path, server_folder: ServerFolder) -> None:
    cluster = postgres.start(
        server_folder, password="Secret1", superuser_password="Secret2", settings=postgres.DISPOSABLE
    )
    copy = valkey.start(server_folder, password="Secret3")
    own_urls = {"DATABASE_URL": cluster.url(), "REDIS_URL": copy.url}
    with running(checkout, free_port(), **own_urls) as (demo, output):
        assert not any("Secret" in line for line in output)
        assert not any("servers run as" in line or "data is in" in line for line in output)
        state = read_state(checkout)
        assert state
        assert {state["database_url"], state["redis_url"]} == set(own_urls.values())
        processes = {process.name() for process in left_in(checkout)}
        assert not processes & {"postgres", "valkey-server"}
        assert manage(checkout, "audit").returncode == 0
        demo.send_signal(signal.SIGINT)
        assert demo.wait(WAIT_SECONDS_MAX) == 0
        assert left_in(checkout) == []
    assert psutil.Process(cluster.pid).is_running()
    assert psutil.Process(copy.pid).is_running()


def test_a_port_in_use_is_one_line_that_names_a_remedy(checkout: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        port = holder.getsockname()[1]
        assert refused(checkout, PORT=str(port)).startswith(
            f"make demo: port {port} is in use; choose another, as in PORT="
        )


@pytest.mark.parametrize("port", ["eighty", "0", "65536", "-1"])
def test_an_invalid_port_is_one_line(checkout: Path, port: str) -> None:
    assert refused(checkout, PORT=port) == f"make demo: PORT={port} is not a port (1 to 65535)"


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("DATABASE_URL", "garbage", "not a URL"),
        ("DATABASE_URL", "mysql://a:b@127.0.0.1/c", "starts with mysql://"),
        ("REDIS_URL", "nonsense", "not a URL"),
    ],
)
def test_an_invalid_server_url_is_one_line(checkout: Path, variable: str, value: str, reason: str) -> None:
    line = refused(checkout, PORT=str(free_port()), **{variable: value})
    assert line.startswith(f"make demo: {variable} must look like ")
    assert reason in line
    assert left_in(checkout) == []


def test_migrations_and_direct_connections_bypass_the_pooler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leader election, draws and migrations connect to PostgreSQL directly; with a server of the demo, to that one."""
    pooled, direct, own = (f"postgres://a:b@127.0.0.1:{port}/c" for port in (1, 2, 3))
    monkeypatch.setenv("DATABASE_DIRECT_URL", direct)
    secrets = {"secret_key": "s", "admin_password": "p", "metrics_token": "m"}
    migrated = []

    def run(command: list[str], env: dict[str, str], **options: object) -> subprocess.CompletedProcess[bytes]:
        migrated.append(env["DATABASE_URL"])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(demos.subprocess, "run", run)
    server_folder = ServerFolder(tmp_path, None, tmp_path, tmp_path)
    own_servers = Servers(postgres.Postgres(server_folder, os.getpid(), 3, "b", "s"), None)
    for servers, url, past in ((Servers(None, None), pooled, direct), (own_servers, own, own)):
        started = demos.Demo(tmp_path, 8000, secrets=secrets, servers=servers)
        demos._settle_environment(started, url, "redis://127.0.0.1:4/0")
        demos._prepare(started)
        assert (started.environment["DATABASE_URL"], started.environment["DATABASE_DIRECT_URL"]) == (url, past)
        assert (read_state(tmp_path) or {})["database_direct_url"] == past
        assert migrated.pop() == past


def test_an_unreachable_database_is_one_line(checkout: Path) -> None:
    unreachable = f"postgres://a:b@127.0.0.1:{free_port()}/c"
    assert "the database does not respond" in refused(checkout, PORT=str(free_port()), DATABASE_URL=unreachable)
    assert left_in(checkout) == []


def test_a_full_disk_is_one_line(checkout: Path, tmp_path: Path) -> None:
    # The kernel's error, at the first write of the demo.
    (tmp_path / "sitecustomize.py").write_text(
        "import errno, os\n"
        "from pathlib import Path\n"
        "def mkdir(self, *a, **k): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))\n"
        "Path.mkdir = mkdir\n"
    )
    assert "the disk is full" in refused(checkout, PORT=str(free_port()), PYTHONPATH=str(tmp_path))


@pytest.mark.parametrize("version", ["3, 10, 4", "3, 15, 0", "2, 7, 18"])
def test_an_unsupported_python_is_one_line(checkout: Path, tmp_path: Path, version: str) -> None:
    python = tmp_path / "python"
    pretend = f"import sys; sys.version_info = ({version}, 'final', 0); exec(sys.argv[1])"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend}" "$2"\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["make", f"PYTHON={python}", "demo"],
        cwd=checkout,
        env=environment(free_port()),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=False,
    )
    assert done.returncode != 0
    assert "Fairgate needs Python 3.11 to 3.14" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert not (checkout / ".venv").exists()


def test_a_missing_python_is_one_line(checkout: Path, tmp_path: Path) -> None:
    for program in ("make", "bash", "sh", "env"):
        found = shutil.which(program)
        assert found
        (tmp_path / program).symlink_to(found)
    done = subprocess.run(
        ["make", "demo"],
        cwd=checkout,
        env={"PATH": str(tmp_path), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=False,
    )
    assert done.returncode != 0
    assert "Fairgate needs Python 3.11 to 3.14; found" in done.stdout
