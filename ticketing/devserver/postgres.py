"""A PostgreSQL 18 cluster: created once, started on a free loopback port, and stopped without leaving processes."""

import contextlib
import shutil
from dataclasses import dataclass
from urllib.parse import quote

import psutil

from ticketing.devserver import processes
from ticketing.devserver.data_folder import ServerFolder, ServersFailed, find_error_line
from ticketing.devserver.ports import LOOPBACK, free_port

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60
PORT_ATTEMPTS_MAX = 5
OWNER = "fairgate"
SUPERUSER = "postgres"

DURABLE = {"shared_buffers": "256MB", "max_connections": "200", "max_wal_size": "1GB"}
# A test cluster is deleted after minutes, so it need not survive a power failure.
DISPOSABLE = {
    "shared_buffers": "128MB",
    "max_connections": "300",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_wal_size": "2GB",
    # Of the password's hash, for each new connection: tests open many thousands.
    "scram_iterations": "1",
}
ALWAYS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",
    "log_lock_waits": "on",
    "deadlock_timeout": "1s",
    "idle_in_transaction_session_timeout": "60s",
}


@dataclass(frozen=True)
class Postgres:
    """A running cluster with one database, owned by a role that may create databases but is not a superuser."""

    place: ServerFolder
    pid: int
    port: int
    password: str
    superuser_password: str

    def url(self, database: str = OWNER) -> str:
        return f"postgres://{OWNER}:{quote(self.password)}@{LOOPBACK}:{self.port}/{database}"

    def superuser_url(self, database: str = "postgres") -> str:
        return f"postgres://{SUPERUSER}:{quote(self.superuser_password)}@{LOOPBACK}:{self.port}/{database}"

    def stop(self) -> None:
        stop(self.place)


def start(
    place: ServerFolder,
    *,
    password: str,
    superuser_password: str,
    settings: dict[str, str] = DURABLE,
    preferred_port: int | None = None,
) -> Postgres:
    """Start the folder's cluster with its database, creating it if needed, and return it.

    Processes left by an earlier run are ended first, so that a restart after `kill -9` is the same as any start. If the
    cluster has other passwords, because their file was lost, they are reset. Raises ServersFailed with one line.
    """
    stop(place)
    if not (place.postgres_data / "PG_VERSION").exists():
        _make_cluster(place, superuser_password)
    port = _launch(place, settings, preferred_port)
    cluster = Postgres(place, _postmaster_pid(place), port, password, superuser_password)
    try:
        _ensure_database(cluster)
    except _PasswordRefused:
        stop(place)
        _reset_superuser_password(place, superuser_password)
        port = _launch(place, settings, port)
        cluster = Postgres(place, _postmaster_pid(place), port, password, superuser_password)
        _ensure_database(cluster)
    return cluster


def stop(place: ServerFolder) -> None:
    """End every process of the folder's cluster: by request, then by force. Does nothing if there is none."""
    data = place.postgres_data
    if not _processes_of(place):
        # After a crash of the machine the pid file may have the id of an unrelated process, and PostgreSQL would refuse
        # to start. No process has its working folder in the cluster, so the cluster is not in use.
        (data / "postmaster.pid").unlink(missing_ok=True)
        return
    # This fails without a postmaster; its orphaned processes are ended below.
    with contextlib.suppress(ServersFailed):
        place.run(
            [place.postgres_bin / "pg_ctl", "-D", data, "-m", "fast", "-t", str(STOP_SECONDS_MAX), "-w", "stop"],
            timeout_seconds=STOP_SECONDS_MAX + 10,
        )
    if not processes.end(lambda: _processes_of(place), polite_seconds=5):
        raise ServersFailed(f"PostgreSQL in {data} cannot be stopped")
    (data / "postmaster.pid").unlink(missing_ok=True)


def _make_cluster(place: ServerFolder, superuser_password: str) -> None:
    unfinished = place.folder / "postgres.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    password_file = place.folder / "initdb-password"
    place.write_private(password_file, superuser_password)
    try:
        place.run(
            [
                place.postgres_bin / "initdb",
                *("-D", unfinished, "-U", SUPERUSER, f"--pwfile={password_file}", "-A", "scram-sha-256"),
                *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
                "--no-sync",
            ]
        )
    finally:
        password_file.unlink(missing_ok=True)
    # All or nothing: a run that is killed during initdb leaves no cluster that looks complete.
    unfinished.rename(place.postgres_data)


def _launch(place: ServerFolder, settings: dict[str, str], preferred_port: int | None) -> int:
    log = place.folder / "postgres.log"
    for _ in range(PORT_ATTEMPTS_MAX):
        port = free_port(preferred_port)
        options = {"port": str(port), **ALWAYS, **settings}
        line = " ".join(f"-c {name}='{value}'" for name, value in options.items())
        log.unlink(missing_ok=True)
        try:
            place.run(
                [
                    place.postgres_bin / "pg_ctl",
                    *("-D", place.postgres_data, "-l", log, "-o", line),
                    *("-w", "-t", str(START_SECONDS_MAX), "start"),
                ],
                timeout_seconds=START_SECONDS_MAX + 10,
            )
        except ServersFailed as error:
            output = log.read_text(errors="replace") if log.exists() else ""
            if "Address already in use" in output:
                preferred_port = None  # Another program took the port after our check: try another one.
                continue
            raise ServersFailed(
                f"PostgreSQL did not start: {find_error_line(output) if output else error} ({log})"
            ) from error
        return port
    raise ServersFailed(f"PostgreSQL found no free port in {PORT_ATTEMPTS_MAX} attempts")


class _PasswordRefused(Exception):
    """The cluster was created with another password."""


def _ensure_database(cluster: Postgres) -> None:
    import psycopg
    from psycopg import sql

    try:
        connection = psycopg.connect(cluster.superuser_url(), autocommit=True, connect_timeout=10)
    except psycopg.OperationalError as error:
        if "password authentication failed" in str(error):
            raise _PasswordRefused from error
        raise ServersFailed(f"PostgreSQL runs but does not respond: {find_error_line(str(error))}") from error
    with connection:
        role, database, password = sql.Identifier(OWNER), sql.Identifier(OWNER), sql.Literal(cluster.password)
        known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [OWNER]).fetchone()
        verb = sql.SQL("ALTER" if known else "CREATE")
        connection.execute(sql.SQL("{} ROLE {} LOGIN CREATEDB PASSWORD {}").format(verb, role, password))
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [OWNER]).fetchone():
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, role))


def _reset_superuser_password(place: ServerFolder, superuser_password: str) -> None:
    # Passwords consist of letters and digits (see servers.py), so the literal needs no escaping.
    place.run(
        [place.postgres_bin / "postgres", "--single", "-D", place.postgres_data, "postgres"],
        stdin=f"ALTER ROLE {SUPERUSER} PASSWORD '{superuser_password}'\n",
    )


def _postmaster_pid(place: ServerFolder) -> int:
    return int((place.postgres_data / "postmaster.pid").read_text().split("\n", 1)[0])


def _processes_of(place: ServerFolder) -> list[psutil.Process]:
    return processes.working_in(place.postgres_data, "postgres")
