"""The idiomatic shop as a running server with filled tables."""

import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.suite import systems
from benchmarks.suite.load import raw_requests
from benchmarks.suite.restore import wait_until_quiet
from benchmarks.suite.systems import Deployment
from ticketing.devserver.ports import free_port

SEATS = 100_000
_FILL = [
    "INSERT INTO idiomatic_section (available) VALUES (2000000000)",
    """INSERT INTO idiomatic_seat (section_id, is_free)
       SELECT (SELECT min(id) FROM idiomatic_section), true FROM generate_series(1, 100000)""",
    """INSERT INTO idiomatic_reservation (id, buyer, expires_at)
       SELECT gen_random_uuid(), 'visitor', clock_timestamp() - interval '1 hour' FROM generate_series(1, 50000)""",
    """INSERT INTO idiomatic_reservedseat (reservation_id, seat_id)
       SELECT id, (SELECT min(id) FROM idiomatic_seat) FROM idiomatic_reservation""",
    "VACUUM ANALYZE idiomatic_section, idiomatic_seat, idiomatic_reservation, idiomatic_reservedseat",
]
_RESTORE = [
    "UPDATE idiomatic_seat SET is_free = true WHERE NOT is_free",
    "VACUUM idiomatic_section, idiomatic_seat",
]


@contextmanager
def running(deployment: Deployment) -> Iterator[int]:
    """Run the shop at the yielded port until the block ends."""
    port = free_port()
    environment = {
        **deployment.environment,
        "SITE_PORT": str(port),
        "DJANGO_SETTINGS_MODULE": "benchmarks.suite.baselines.idiomatic.settings",
    }
    systems.run(
        deployment.servers,
        "idiomatic-tables",
        [sys.executable, "-m", "django", "migrate", "--run-syncdb", "-v0"],
        environment,
    )
    with deployment.ledger() as on:
        for statement in _FILL:
            on.execute(statement)  # type: ignore[call-overload]
    command = systems.command_of("site", application="benchmarks.suite.baselines.idiomatic.wsgi:application")
    with systems.started(deployment.servers, "idiomatic", command, environment) as process:
        systems.wait_until_answering(port, process, "the idiomatic shop")
        yield port


def holds(count: int) -> list[bytes]:
    run = secrets.token_hex(6)
    return [
        raw_requests.post("/reservations", json.dumps({"buyer": f"{run}-{n}", "seats": [first + 1, second + 1]}))
        for n, (first, second) in enumerate(raw_requests.pairs(SEATS, count))
    ]


def restore(deployment: Deployment) -> None:
    with deployment.ledger() as on:
        wait_until_quiet(on, "idiomatic_reservedseat_id_seq")
        for statement in _RESTORE:
            on.execute(statement)  # type: ignore[call-overload]
