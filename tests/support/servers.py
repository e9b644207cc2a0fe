"""The servers that a test run starts for itself, before Django's settings are read.

One PostgreSQL for the run, in which every parallel worker has its own database, and one Valkey per worker, because
flush, publish and kill are not per database there. They live in a temporary folder with a guardian that removes
everything when the run ends, even if it is killed.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg

from ticketing.devserver.data_folder import (
    Account,
    ServerFolder,
    ServersFailed,
    can_enter,
    choose_account,
    create_folder,
)
from ticketing.devserver.guardian import dismiss, start_guardian
from ticketing.devserver.postgres import OWNER, Postgres
from ticketing.devserver.servers import Servers, new_password, start_disposable

CHECKOUT = Path(__file__).resolve().parent.parent.parent
DATABASE_OF_RUN = "FAIRGATE_TEST_DATABASE_URL"
# A developer's environment may name other servers. It must not reach a test run, which creates and drops databases.
OVERRIDDEN = (
    "DATABASE_URL",
    "DATABASE_DIRECT_URL",
    "REDIS_URL",
    "CELERY_BROKER_URL",
    "SECRET_KEY",
    "SECRET_KEY_FALLBACKS",
    "TOKEN_KEYS",
    "METRICS_TOKEN",
    "OPERATIONS_PORT",
    "PAYMENT_PROVIDER",
    "ALLOW_SANDBOX",
    "SITE_URL",
    "ALLOWED_HOSTS",
    "EMAIL_URL",
    "DEBUG",
    "LOG_LEVEL",
    "METRICS_FOLDER",
    "TRUSTED_PROXIES",
)


def enterable_folder(account: Account | None) -> Path:
    """Return a parent for temporary folders that the servers' account can enter. Raises ServersFailed."""
    for parent in (Path(tempfile.gettempdir()), Path("/var/tmp")):
        if account is None or can_enter(parent, account):
            return parent
    raise ServersFailed(f"account {account.name} can enter neither {tempfile.gettempdir()} nor /var/tmp")


def temporary_server_folder() -> tuple[ServerFolder, Callable[[], None]]:
    """Return a new temporary folder, and a function that stops its servers and removes it."""
    account = choose_account()
    place = create_folder(enterable_folder(account) / f"fairgate-test-{os.getpid()}-{new_password()[:8]}", account)
    guardian = start_guardian(place.folder, CHECKOUT)
    return place, lambda: dismiss(guardian)


def start_for_run(*, distributes: bool) -> Callable[[], None]:
    """Start what this process of the run needs, point the environment at it, and return a function that stops it.

    `distributes`: this process only hands tests to parallel workers. It starts the PostgreSQL that they share.
    """
    for name in OVERRIDDEN:
        os.environ.pop(name, None)
    is_worker = "PYTEST_XDIST_WORKER" in os.environ and DATABASE_OF_RUN in os.environ
    place, end = temporary_server_folder()
    try:
        servers = start_disposable(place, with_postgres=not is_worker, with_valkey=not distributes)
    except BaseException:
        end()
        raise
    if servers.postgres:
        _configure_owner(servers.postgres)
    _point_environment_at(servers)
    os.environ["METRICS_FOLDER"] = str(place.folder / "metrics")
    # A file of its own for each worker: it is emptied before each test.
    os.environ["SANDBOX_BOOKS"] = str(place.folder / "sandbox" / "books.sqlite3")
    if not distributes:
        os.environ["DJANGO_SETTINGS_MODULE"] = "ticketing.settings"
    return end


def _configure_owner(cluster: Postgres) -> None:
    """Let the databases' owner switch off foreign keys and triggers for a transaction (see `tests.support.databases`),
    and detect its deadlocks, which some tests cause on purpose, in a tenth of the usual second."""
    with psycopg.connect(cluster.superuser_url(), autocommit=True) as server:
        server.execute(f"GRANT SET ON PARAMETER session_replication_role TO {OWNER}")
        server.execute(f"ALTER ROLE {OWNER} SET deadlock_timeout = '100ms'")


def _point_environment_at(servers: Servers) -> None:
    if servers.postgres:
        os.environ[DATABASE_OF_RUN] = servers.postgres.url()
    os.environ["DATABASE_URL"] = os.environ[DATABASE_OF_RUN]
    if servers.valkey:
        os.environ["REDIS_URL"] = servers.valkey.url
    # Tests connect from here; tests of the rate limits use other addresses.
    os.environ["RATE_LIMITS_EXEMPT"] = "127.0.0.0/8,::1"
    # A rival delayed by a busy machine must not be cut off. The session limits have their own test.
    os.environ["DATABASE_LIMITS_SESSIONS"] = "false"
    # Delayed outcomes of the sandbox's test cards are due at once.
    os.environ["SANDBOX_PAUSE_SECONDS"] = "0"
    os.environ["METRICS_TOKEN"] = "known-to-every-test"
    os.environ["SECRET_KEY"] = "known-to-every-test-and-good-for-nothing-else"


def environment_without_run() -> dict[str, str]:
    """Return the environment for a process that must find its own servers, as in a fresh shell."""
    run_variables = (
        *OVERRIDDEN,
        DATABASE_OF_RUN,
        "DATABASE_LIMITS_SESSIONS",
        "DJANGO_SETTINGS_MODULE",
        "PYTEST_CURRENT_TEST",
        "PORT",
    )
    return {
        name: value
        for name, value in os.environ.items()
        if name not in run_variables and not name.startswith("PYTEST_XDIST")
    }


def end_processes(processes: list[subprocess.Popen[bytes]]) -> None:
    """Kill the processes and wait for their end."""
    for process in processes:
        process.kill()
    for process in processes:
        process.wait(timeout=10)
