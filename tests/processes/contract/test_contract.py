"""The API does what its OpenAPI document says: generated calls, good and bad, against the served application.

Schemathesis generates calls for every operation (edge cases, random ones, and chains of calls) and runs all its checks
on the responses. The calls are the same in every run. `CONTRACT_EXAMPLES=200` searches longer.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.processes.contract import sale_state
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean
from tests.support.orders.sale import deliver_outbox
from tests.support.servers import CHECKOUT
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, web

EXAMPLES = int(os.environ.get("CONTRACT_EXAMPLES", "20"))
"""Random calls of each operation, and chains of calls."""
CALLS_MIN = 1_000
"""Fewer calls would mean that an operation is not tested."""
SECONDS_MAX = 60 * max(EXAMPLES, 20)
KNOWN_VALUE_PROBABILITY = 0.85
KNOWN_VALUES = {
    "path.event": "event",
    "path.section": "section",
    "path.reservation_id": "reservation",
    "path.order_id": "order",
    "path.provider": "provider",
    "path.feed": "feed",
    "body.messages[*].id": "message",
    "query.reservation": "reservation",
    "query.order": "order",
    "header.Idempotency-Key": "key",
    "body.seats[*]": "seat",
    "body.ga_section": "general_admission",
    "body.best_available.section": "section",
    "body.access_code": "access_code",
    "body.tickets[*]": "ticket",
    "body.scan_id": "scan",
    "body.code": "code",
    "body.email": "email",
    "body.payment_method": "method",
    "body.username": "username",
    "body.password": "password",
}
"""Parameters and members of bodies, and the values of the sale (`sale_state`) that calls usually contain there."""


def configuration(values: dict[str, list[str]]) -> str:
    """Return the text of schemathesis.toml."""
    lines = [
        "continue-on-failure = true",
        "[generation]",
        "deterministic = true",
        f"max-examples = {EXAMPLES}",
        # Every text with a NUL is refused: PostgreSQL does not store it. No schema says that of each string.
        "allow-x00 = false",
    ]
    for name, entries in values.items():
        lines += [f"[dictionaries.{name}]", f"values = {json.dumps(entries)}"]
    lines.append("[parameters]")
    for parameter, name in KNOWN_VALUES.items():
        lines.append(f'"{parameter}" = {{ dictionary = "{name}", probability = {KNOWN_VALUE_PROBABILITY} }}')
    return "\n".join(lines) + "\n"


@pytest.fixture
def server(transactional_db: None, live_server: Any) -> Iterator[Web]:
    """The fast path server, in front of the site."""
    url = database_url()
    with web(live_server.thread.port, DATABASE_URL=url, DATABASE_DIRECT_URL=url) as served:
        yield served


def test_every_response_is_the_one_that_the_document_describes(server: Web, tmp_path: Path) -> None:
    state = sale_state.prepare()
    settings, tokens = tmp_path / "schemathesis.toml", tmp_path / "tokens.json"
    settings.write_text(configuration(state["values"]))
    tokens.write_text(json.dumps(state["tokens"]))
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), "run", "--no-color"]
    run = subprocess.run(
        [*command, "--warnings", "off", f"http://127.0.0.1:{server.port}/api/schema"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(CHECKOUT),
            "SCHEMATHESIS_HOOKS": "tests.processes.contract.hooks",
            "CONTRACT_TOKENS": str(tokens),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    print(run.stdout)
    assert run.returncode == 0, run.stdout[-8_000:] + run.stderr[-2_000:]
    assert int(re.findall(r"(\d+) generated", run.stdout)[-1]) > CALLS_MIN
    deliver_outbox()
    assert_audit_clean()


def test_addresses_of_operators_refuse_other_methods(server: Web) -> None:
    for address in ("healthz", "readyz", "metrics"):
        refused = requests.post(f"http://127.0.0.1:{server.port}/{address}", timeout=WAIT_SECONDS_MAX)
        assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD")
