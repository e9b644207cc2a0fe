"""The whole deployment behind pgbouncer in transaction mode, with a single session for all of its processes."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apps.kernel.db import role_limits
from apps.orders.models import Order
from tests.kernel.db.test_role_limits import reset_limits
from tests.support.factories import assert_audit_clean
from tests.support.pgbouncer import Pooler, pooler
from tests.support.queue.rooms import make_room
from tests.support.web_processes import CHECKOUT, WAIT_SECONDS_MAX, wait_until
from ticketing.devserver.ports import LOOPBACK, free_port
from ticketing.simulator import population
from ticketing.simulator.plan import Plan

pytestmark = [pytest.mark.pgbouncer, pytest.mark.django_db(transaction=True)]

NAME = "behind-the-pooler"
VISITORS, BUYERS = 16, 10
PREPARING = ("joins", "exchange", "holds", "checkouts", "reads")
# State that a transaction could leave to the next user of its session.
LEFT_BEHIND = """
    SELECT current_setting('lock_timeout'), current_setting('statement_timeout'),
           current_setting('idle_in_transaction_session_timeout'), current_setting('search_path'),
           (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors),
           (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
           (SELECT count(*) FROM pg_listening_channels()),
           (SELECT count(*) FROM pg_class WHERE relpersistence = 't')
"""
# Errors of a process that relies on the state of a session that is not its own.
REFUSED = re.compile("prepared statement|startup parameter|cursor .* does not exist|advisory lock", re.IGNORECASE)


@contextlib.contextmanager
def deployment_behind(through: Pooler, folder: Path) -> Iterator[str]:
    """Run every process of the Procfile until the block ends; yield the address once they are ready."""
    port = free_port()
    environment = {
        **os.environ,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "DATABASE_URL": through.url,
        "DATABASE_DIRECT_URL": through.direct_url,
        "APPLICATION_NAME": NAME,
        "PORT": str(port),
        "SITE_PORT": str(free_port()),
        "WEB_WORKERS": "1",
        "SITE_WORKERS": "1",
        "WORKER_PROCESSES": "1",
        "WEB_FAREWELL_SECONDS": "0",
        "BEAT_FILE": str(folder / "celerybeat"),
        "LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore",
    }
    output = folder / "processes.log"
    with open(output, "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ticketing.devserver.supervisor", str(CHECKOUT / "Procfile")],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    address = f"http://{LOOPBACK}:{port}"
    try:
        wait_until(lambda: _status(f"{address}/readyz") == 200, "the site is ready", while_runs=process)
        yield address
        assert process.poll() is None, f"the processes ended by themselves:\n{output.read_text()}"
    finally:
        process.terminate()
        process.wait(timeout=WAIT_SECONDS_MAX)
    assert not REFUSED.search(output.read_text()), output.read_text()


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS_MAX) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


@pytest.fixture
def limited(transactional_db: None, settings: Any) -> Iterator[None]:
    """Apply role limits as `migrate` does in production, with values that no transaction sets."""
    settings.DATABASE_LOCK_TIMEOUT_MS = 41_000
    settings.DATABASE_STATEMENT_TIMEOUT_MS = 42_000
    settings.DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS = 43_000
    role_limits.apply()
    yield
    reset_limits()


def test_a_sale_works_with_one_session_for_all_processes(limited: None, tmp_path: Path) -> None:
    """No process needs a second session while it holds one, or the sale would hang. No transaction leaves state in the
    session. Only leader election, draws and group commits bypass the pooler."""
    event = make_room("flash-sale", rate=50, active=10, general_admission=200)
    with pooler(sessions=1, query_wait_timeout="100") as through, deployment_behind(through, tmp_path) as address:
        before = left_in(through)
        assert before[:3] == ("41s", "42s", "43s"), "the role's limits"
        plan = Plan(
            event=event.slug,
            base=address,
            visitors=VISITORS,
            over_seconds=0.5,
            buyers=BUYERS,
            double=0.5,
            change=0.3,
            stay_seconds=0.2,
            connections=6,
            rate_max=50,
            active_max=10,
        )
        result = asyncio.run(population.run(plan))
        assert result.is_clean, result.figures.breaches
        assert left_in(through) == before
        assert {f"{NAME} joins", f"{NAME} holds"} <= sessions_past(through) <= {f"{NAME} {name}" for name in PREPARING}
        assert len(through.sessions()) == 1
    assert result.figures.counts["bought"] == Order.objects.filter(status="confirmed").count() > 0
    assert_audit_clean()


def left_in(through: Pooler) -> Any:
    with psycopg.connect(through.url, prepare_threshold=None) as session:
        return session.execute(LEFT_BEHIND).fetchone()


def sessions_past(through: Pooler) -> set[str]:
    """Return the names of the deployment's sessions that bypass the pooler."""
    with psycopg.connect(through.direct_url) as session:
        known = session.execute(
            "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE %s AND NOT pid = ANY (%s)",
            [f"{NAME}%", list(through.sessions())],
        )
        return {name for (name,) in known}
