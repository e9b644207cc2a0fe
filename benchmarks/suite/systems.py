"""The deployments under test: one PostgreSQL and one Valkey for all of them, as in `make demo`, and for each a database
and the processes of the Procfile, started with the Procfile's commands.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
from honcho.environ import parse_procfile

from benchmarks.suite.errors import SuiteFailed
from tests.support.servers import environment_without_run, temporary_server_folder
from ticketing.devserver import postgres, valkey
from ticketing.devserver.ports import free_port
from ticketing.devserver.servers import Servers, new_password

CHECKOUT = Path(__file__).resolve().parent.parent.parent
READY_SECONDS_MAX = 60
END_SECONDS_MAX = 15
FILL_SECONDS_MAX = 900
# All load comes from one address, so the limits per address must not apply.
RATE_LIMIT_SETTINGS = {"RATE_LIMITS_EXEMPT": "127.0.0.0/8,::1/128"}


@dataclass
class BenchServers:
    """Both servers, and the template database of the deployments: migrated, without events."""

    servers: Servers
    folder: Path
    """The run's folder: logs, tokens, flame graphs."""
    secret_key: str = field(default_factory=new_password)

    @property
    def cluster(self) -> postgres.Postgres:
        assert self.servers.postgres is not None
        return self.servers.postgres

    @property
    def pgbench(self) -> Path:
        return self.cluster.place.postgres_bin / "pgbench"

    def environment(self, database: str, redis_number: int) -> dict[str, str]:
        assert self.servers.valkey is not None
        redis = urlsplit(self.servers.valkey.url)._replace(path=f"/{redis_number}").geturl()
        return {
            **environment_without_run(),
            **RATE_LIMIT_SETTINGS,
            "DATABASE_URL": self.cluster.url(database),
            "REDIS_URL": redis,
            "SECRET_KEY": f"known-to-every-benchmark-and-good-for-nothing-else-{self.secret_key}",
            "DJANGO_SETTINGS_MODULE": "ticketing.settings",
            "LOG_LEVEL": "WARNING",
            "PYTHONUNBUFFERED": "1",
            "EMAIL_URL": "dummymail://",  # Rendered with its PDF, then discarded.
            "SANDBOX_PAUSE_SECONDS": "0",
            "SANDBOX_BOOKS": str(self.folder / f"{database}-sandbox.sqlite3"),
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        }


@contextmanager
def bench_servers(folder: Path) -> Iterator[BenchServers]:
    place, end = temporary_server_folder()
    try:
        # Three deployments share it, and Django's own ASGI handler opens a new connection for each request.
        settings = postgres.DURABLE | {"max_connections": "500"}
        cluster = postgres.start(place, password=new_password(), superuser_password=new_password(), settings=settings)
        made = BenchServers(Servers(cluster, valkey.start(place, password=new_password())), folder)
        with psycopg.connect(cluster.superuser_url(), autocommit=True) as on:
            # `fill` disables foreign key triggers.
            on.execute(f"GRANT SET ON PARAMETER session_replication_role TO {postgres.OWNER}")  # type: ignore[call-overload]
        run(made, "migrate", [sys.executable, "manage.py", "migrate", "-v0"], made.environment(postgres.OWNER, 0))
        yield made
    finally:
        end()


def run(on: BenchServers, name: str, command: Sequence[str], environment: dict[str, str]) -> None:
    """Run the command to its end. Raises SuiteFailed with its last line of output."""
    log = on.folder / f"{name}.log"
    with log.open("w") as output:
        done = subprocess.run(command, cwd=CHECKOUT, env=environment, stdout=output, stderr=output, check=False)
    if done.returncode != 0:
        raise SuiteFailed(f"{name} failed: {last_line(log)} ({log})")


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


@dataclass
class Deployment:
    """A filled database, and the ports of the processes that serve it."""

    servers: BenchServers
    name: str
    database: str
    environment: dict[str, str]
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def web_port(self) -> int:
        return int(self.environment["PORT"])

    @property
    def site_port(self) -> int:
        return int(self.environment["SITE_PORT"])

    @cached_property
    def facts(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "facts.json").read_text()))

    def tokens(self, of: str) -> list[str]:
        return (self.folder / f"{of}.tokens").read_text().split("\n")

    def ledger(self) -> psycopg.Connection[Any]:
        """Return a connection of the superuser in autocommit mode."""
        return psycopg.connect(self.servers.cluster.superuser_url(self.database), autocommit=True)


def make_deployment(on: BenchServers, name: str, redis_number: int, sizes: Sequence[int]) -> Deployment:
    """Create and fill a deployment with these numbers of seats, old reservations, waiting visitors and small events.
    Its processes are not started."""
    database = f"bench_{name}"
    with psycopg.connect(on.cluster.superuser_url(), autocommit=True) as cluster:
        cluster.execute(f"CREATE DATABASE {database} TEMPLATE {postgres.OWNER} OWNER {postgres.OWNER}")  # type: ignore[call-overload]
    folder = on.folder / name
    folder.mkdir()
    port, site_port = free_port(), free_port()
    environment = {
        **on.environment(database, redis_number),
        "PORT": str(port),
        "SITE_PORT": str(site_port),
        "SITE_URL": f"http://127.0.0.1:{port}",
    }
    command = [sys.executable, "-m", "benchmarks.suite.fill", str(folder), *map(str, sizes)]
    run(on, f"filling-{name}", command, environment)
    return Deployment(on, name, database, environment, folder)


PROCESSES = ("site", "web", "gatekeeper", "relay")
"""Benchmarks with payments start `worker` and `mailer` themselves; the gatekeeper's maintenance resets the gates."""


@contextmanager
def running(deployment: Deployment) -> Iterator[Deployment]:
    """Run the deployment's processes until the block ends."""
    with ExitStack() as until:
        for name in PROCESSES:
            deployment.processes[name] = until.enter_context(
                started(deployment.servers, f"{deployment.name}-{name}", command_of(name), deployment.environment)
            )
        web = deployment.processes["web"]
        wait_until_ready(deployment.web_port, "/readyz", web, f"the web process of {deployment.name}")
        yield deployment
    deployment.processes.clear()


@contextmanager
def paused(deployment: Deployment, name: str) -> Iterator[None]:
    """Stop the process during the block, at a moment at which it has no transaction open. Raises SuiteFailed."""
    process = psutil.Process(deployment.processes[name].pid)
    deadline = time.monotonic() + READY_SECONDS_MAX
    try:
        process.suspend()
        while _is_in_transaction(deployment, process):
            process.resume()
            if time.monotonic() > deadline:
                raise SuiteFailed(f"{name} always has a transaction open")
            time.sleep(0.05)
            process.suspend()
        yield
    finally:
        process.resume()


def _is_in_transaction(deployment: Deployment, process: psutil.Process) -> bool:
    """Return whether a connection of this process to PostgreSQL is not idle."""
    ports = [connection.laddr.port for connection in process.net_connections("tcp") if connection.laddr]
    with deployment.ledger() as on:
        busy = on.execute(
            "SELECT 1 FROM pg_stat_activity WHERE state <> 'idle' AND client_port = ANY(%s)", [ports]
        ).fetchone()
    return busy is not None


def command_of(name: str, *, application: str = "") -> str:
    """Return the Procfile's command of this process, optionally with another application and the same options, and then
    without the check of our settings before the start."""
    commands = parse_procfile((CHECKOUT / "Procfile").read_text()).processes
    command = str(commands[name])
    if not application:
        return command
    usual = {"web": "-m ticketing.server.run", "site": "ticketing.wsgi:application"}[name]
    if usual not in command:
        raise SuiteFailed(f"the Procfile's {name} has no {usual} that could be replaced")
    command = command.replace("python -m ticketing.startup && ", "")
    served = f"-c \"from ticketing.server import run; raise SystemExit(run.main('{application}'))\""
    return command.replace(usual, served if name == "web" else application)


@contextmanager
def started(
    on: BenchServers, name: str, command: str, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command in its own process group, and end that group after the block."""
    with (on.folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_until_answering(port: int, process: subprocess.Popen[bytes], name: str) -> None:
    """Wait until the port sends any response. Raises SuiteFailed."""
    wait_until_ready(port, "/", process, name, anything=True)


def wait_until_ready(
    port: int, path: str, process: subprocess.Popen[bytes], name: str, *, anything: bool = False
) -> None:
    """Wait until the URL returns 200. Raises SuiteFailed."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    last = "no response"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SuiteFailed(f"{name} ended before it was ready")
        try:
            with opener.open(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
                if response.status == 200:
                    return
        except urllib.error.HTTPError as error:
            last = f"{error.code} {error.read(200).decode(errors='replace').strip()}"
            error.close()
            if anything:
                return
        except OSError as error:
            last = str(error)  # Not listening yet.
        time.sleep(0.05)
    raise SuiteFailed(f"{name} was not ready after {READY_SECONDS_MAX} s; the last response: {last}")
