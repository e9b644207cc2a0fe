"""The sandbox's books: a file that all processes share, in which a charge is before it is answered."""

import os
import signal
import subprocess
import sys
from uuid import uuid4

import pytest

from apps.kernel import clock
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import ChargeRequest, Kind
from apps.orders.payments.providers.sandbox import store
from tests.support.orders.sandbox_rows import SandboxCharge
from tests.support.races import statements, storm, values
from tests.support.servers import CHECKOUT

pytestmark = pytest.mark.django_db(transaction=True)

CHARGES_AND_IS_KILLED = """
import os, signal, sys
from uuid import UUID
import django
django.setup()
from apps.kernel import clock
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import ChargeRequest
requests = [ChargeRequest(UUID(key), sandbox.APPROVES, 700, "USD", "", clock.process_now()) for key in sys.argv[1:]]
answers = [begun.result() for begun in sandbox.Sandbox().begin_charges(requests)]
assert all(answer.amount_minor == 700 for answer in answers)
os.kill(os.getpid(), signal.SIGKILL)
"""


def request() -> ChargeRequest:
    return ChargeRequest(uuid4(), sandbox.APPROVES, 700, "USD", "", clock.process_now())


def test_charges_that_were_acknowledged_survive_the_end_of_their_process() -> None:
    keys = [uuid4() for _ in range(3)]
    ended = subprocess.run(
        [sys.executable, "-c", CHARGES_AND_IS_KILLED, *map(str, keys)], cwd=CHECKOUT, env=os.environ, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    for key in keys:
        found = sandbox.Sandbox().find_charge(key)
        assert found is not None
        assert found.kind == Kind.SUCCEEDED


def test_a_list_of_charges_is_one_transaction_of_the_books_and_none_of_the_database() -> None:
    seen: list[str] = []
    requests = [request() for _ in range(5)]
    with store.transaction() as on:
        on.set_trace_callback(seen.append)
    try:
        with statements() as sent:
            begun = sandbox.Sandbox().begin_charges(requests)
    finally:
        with store.transaction() as on:
            on.set_trace_callback(None)
    assert [each.result().key for each in begun] == [str(each.key) for each in requests]
    assert (sent, seen.count("COMMIT")) == ([], 2), "the trace's own transaction is counted too"


def test_concurrent_charges_of_one_key_create_one_charge() -> None:
    one = request()
    answers = values(storm(6, lambda _: sandbox.Sandbox().begin_charges([one])[0].result()))
    assert len({answer.reference for answer in answers}) == SandboxCharge.objects.count() == 1


def test_a_commit_is_written_through_to_the_disk() -> None:
    with store.transaction(writes=False) as on:
        assert on.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
        assert on.execute("PRAGMA journal_mode").fetchone() == ("wal",)
