"""PostgreSQL alone, driven by pgbench: the same hold as one statement in one transaction, on tables of the same shape
as ours (every column, index and check, but no foreign keys), in the same database.

In addition there are lean tables with only what a hold needs, as in a layout optimized for this one figure.
"""

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load.raw_requests import SPREAD
from benchmarks.suite.systems import Deployment

CLIENTS = 32
SEATS = 200_000

_TABLES = [
    "CREATE TABLE alone_reservation (LIKE reservations_reservation INCLUDING ALL)",
    "CREATE TABLE alone_line (LIKE reservations_reservationline INCLUDING ALL)",
    "CREATE TABLE alone_transition (LIKE reservations_reservationtransition INCLUDING ALL)",
    "CREATE TABLE alone_seat (LIKE reservations_seatinventory INCLUDING ALL)",
    "CREATE TABLE alone_floor (LIKE reservations_generaladmissioninventory INCLUDING ALL)",
    "CREATE TABLE alone_entry (LIKE queue_queueentry INCLUDING ALL)",
    "CREATE TABLE alone_counter (section_id bigint PRIMARY KEY, available bigint NOT NULL)",
    "CREATE SEQUENCE alone_number",
    "INSERT INTO alone_reservation SELECT * FROM reservations_reservation WHERE status = 'expired'",
    """INSERT INTO alone_line (reservation_id, section_id, category_id, seat_id, quantity, price_minor, live)
       SELECT reservation_id, section_id, category_id, seat_id, quantity, price_minor, live
       FROM reservations_reservationline WHERE NOT live""",
    """INSERT INTO alone_transition (reservation_id, from_status, to_status, who, why, at)
       SELECT reservation_id, from_status, to_status, who, why, at FROM reservations_reservationtransition""",
    """INSERT INTO alone_seat (seat_id, event_id, section_id, category_id, row_index, place_index, rank, accessible,
                               companion, status)
       SELECT n, 1, 1, 1, n / 50, n % 50, n, false, false, 0 FROM generate_series(1, 200000) AS n""",
    """INSERT INTO alone_floor (section_id, event_id, capacity, blocked, taken, house)
       VALUES (1, 1, 2000000000, 0, 0, 0)""",
    "INSERT INTO alone_entry SELECT * FROM queue_queueentry WHERE status = 'waiting' LIMIT 100000",
    "SELECT setval('alone_number', (SELECT max(number) FROM alone_entry))",
    "INSERT INTO alone_counter VALUES (1, 2000000000)",
    "CREATE TABLE lean_reservation (id uuid PRIMARY KEY, who text, status text, expires_at timestamptz)",
    "CREATE TABLE lean_seat (id bigint PRIMARY KEY, status smallint NOT NULL, reservation_id uuid)",
    "CREATE TABLE lean_line (reservation_id uuid, seat_id bigint, section_id bigint, quantity int)",
    "CREATE TABLE lean_transition (reservation_id uuid, what text, at timestamptz)",
    "CREATE TABLE lean_floor (section_id bigint PRIMARY KEY, remaining bigint NOT NULL CHECK (remaining >= 0))",
    "INSERT INTO lean_reservation SELECT id, buyer, status, expires_at FROM alone_reservation",
    "INSERT INTO lean_seat SELECT n, 0, NULL FROM generate_series(1, 200000) AS n",
    "INSERT INTO lean_line SELECT reservation_id, NULL, section_id, quantity FROM alone_line",
    "INSERT INTO lean_transition SELECT reservation_id, to_status, at FROM alone_transition",
    "INSERT INTO lean_floor VALUES (1, 2000000000)",
]
_RESTORE = [
    "UPDATE alone_seat SET status = 0, reservation_id = NULL WHERE status = 1",
    "DELETE FROM alone_line WHERE live",
    "DELETE FROM alone_transition WHERE reservation_id IN (SELECT id FROM alone_reservation WHERE status <> 'expired')",
    "DELETE FROM alone_reservation WHERE status <> 'expired'",
    "UPDATE alone_floor SET taken = 0",
    "UPDATE lean_seat SET status = 0, reservation_id = NULL WHERE status = 1",
    "DELETE FROM lean_line WHERE reservation_id IN (SELECT id FROM lean_reservation WHERE status <> 'expired')",
    "DELETE FROM lean_transition WHERE what = 'hold'",
    "DELETE FROM lean_reservation WHERE status <> 'expired'",
    """VACUUM alone_seat, alone_line, alone_transition, alone_reservation, alone_floor, alone_counter, lean_seat,
              lean_line, lean_transition, lean_reservation, lean_floor""",
]
_CHOOSE = f"""
\\set n :n + 1
\\set pair ((:client_id * {SEATS // 2 // CLIENTS} + :n) * {SPREAD}) % {SEATS // 2}
\\set first 2 * :pair + 1
\\set second 2 * :pair + 2
"""
_HOLD_GENERAL_ADMISSION = """
WITH taken AS (
    UPDATE alone_floor SET taken = taken + 2 WHERE section_id = 1 AND capacity - blocked - taken >= 2
    RETURNING section_id, event_id
), held AS (
    INSERT INTO alone_reservation (id, event_id, entry_id, buyer, email, status, expires_at, seat_count, total_minor,
                                   currency, created_at)
    SELECT gen_random_uuid(), event_id, gen_random_uuid(), 'visitor-' || :client_id::int, '', 'pending_payment',
           clock_timestamp() + interval '10 minutes', 2, 5000, 'USD', clock_timestamp()
    FROM taken
    RETURNING id
), line AS (
    INSERT INTO alone_line (reservation_id, section_id, category_id, seat_id, quantity, price_minor, live)
    SELECT held.id, 1, 1, NULL, 2, 2500, true FROM held
)
INSERT INTO alone_transition (reservation_id, from_status, to_status, who, why, at)
SELECT id, '', 'pending_payment', 'visitor', '', clock_timestamp() FROM held;
"""
_SEATS_BEGIN = """
WITH locked AS MATERIALIZED (
    SELECT seat_id FROM alone_seat WHERE seat_id IN (:first, :second) AND status = 0
    ORDER BY seat_id FOR NO KEY UPDATE
), new AS MATERIALIZED (
    SELECT gen_random_uuid() AS id WHERE (SELECT count(*) FROM locked) = 2
), taken AS (
    UPDATE alone_seat SET status = 1, reservation_id = new.id FROM new
    WHERE seat_id IN (:first, :second)
    RETURNING seat_id, section_id, category_id
), held AS (
    INSERT INTO alone_reservation (id, event_id, entry_id, buyer, email, status, expires_at, seat_count, total_minor,
                                   currency, created_at)
    SELECT id, 1, gen_random_uuid(), 'visitor-' || :client_id::int, '', 'pending_payment',
           clock_timestamp() + interval '10 minutes', 2, 10000, 'USD', clock_timestamp()
    FROM new
), line AS (
    INSERT INTO alone_line (reservation_id, section_id, category_id, seat_id, quantity, price_minor, live)
    SELECT new.id, section_id, category_id, seat_id, 1, 5000, true FROM taken, new
)"""
_SEATS_COUNTED = """, counted AS (
    UPDATE alone_counter SET available = available - 2
    WHERE section_id = 1 AND available >= 2 AND (SELECT count(*) FROM locked) = 2
)"""
_SEATS_END = """
INSERT INTO alone_transition (reservation_id, from_status, to_status, who, why, at)
SELECT id, '', 'pending_payment', 'visitor', '', clock_timestamp() FROM new;
"""
_LEAN_GENERAL_ADMISSION = """
WITH taken AS (
    UPDATE lean_floor SET remaining = remaining - 2 WHERE section_id = 1 AND remaining >= 2 RETURNING section_id
), held AS (
    INSERT INTO lean_reservation
    SELECT gen_random_uuid(), 'visitor-' || :client_id::int, 'pending', clock_timestamp() + interval '10 minutes'
    FROM taken
    RETURNING id
), line AS (
    INSERT INTO lean_line SELECT id, NULL, 1, 2 FROM held
)
INSERT INTO lean_transition SELECT id, 'hold', clock_timestamp() FROM held;
"""
_LEAN_SEATS = """
WITH locked AS MATERIALIZED (
    SELECT id FROM lean_seat WHERE id IN (:first, :second) AND status = 0 ORDER BY id FOR NO KEY UPDATE
), new AS MATERIALIZED (
    SELECT gen_random_uuid() AS id WHERE (SELECT count(*) FROM locked) = 2
), taken AS (
    UPDATE lean_seat SET status = 1, reservation_id = new.id FROM new WHERE lean_seat.id IN (:first, :second)
    RETURNING lean_seat.id
), held AS (
    INSERT INTO lean_reservation
    SELECT id, 'visitor-' || :client_id::int, 'pending', clock_timestamp() + interval '10 minutes' FROM new
), line AS (
    INSERT INTO lean_line SELECT new.id, taken.id, 1, 1 FROM taken, new
)
INSERT INTO lean_transition SELECT id, 'hold', clock_timestamp() FROM new;
"""
_JOIN = """
INSERT INTO alone_entry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, joined_at)
VALUES (gen_random_uuid(), 1, nextval('alone_number'), false, uuid_send(gen_random_uuid()), '',
        'visitor-' || gen_random_uuid(), 'waiting', clock_timestamp());
"""


@dataclass(frozen=True)
class Script:
    """A pgbench script, and the table whose rows show how often it ran."""

    text: str
    table: str


HOLD_GENERAL_ADMISSION = Script(_HOLD_GENERAL_ADMISSION, "alone_reservation")
HOLD_SEATS = Script(_CHOOSE + _SEATS_BEGIN + _SEATS_END, "alone_reservation")
HOLD_SEATS_COUNTED = Script(_CHOOSE + _SEATS_BEGIN + _SEATS_COUNTED + _SEATS_END, "alone_reservation")
LEAN_GENERAL_ADMISSION = Script(_LEAN_GENERAL_ADMISSION, "lean_reservation")
LEAN_SEATS = Script(_CHOOSE + _LEAN_SEATS, "lean_reservation")
JOIN = Script(_JOIN, "alone_entry")


def create_tables(deployment: Deployment) -> None:
    """Create the tables with as many rows as the system's own."""
    with deployment.ledger() as on:
        on.execute("SET statement_timeout = 0")
        for statement in _TABLES:
            on.execute(statement)  # type: ignore[call-overload]
        on.execute("VACUUM ANALYZE")
        # Write everything to disk before the first measurement.
        on.execute("CHECKPOINT")


def rate(deployment: Deployment, script: Script, seconds: int, clients: int = CLIENTS) -> float:
    """Return the number of runs per second, by the rows in the table afterwards, and restore the table."""
    cluster = deployment.servers.cluster
    count = f"SELECT count(*) FROM {script.table}"  # noqa: S608 - a table of ours
    with deployment.ledger() as on, tempfile.TemporaryDirectory(prefix="fairgate-pgbench-") as made:
        path = Path(made) / "script.sql"
        path.write_text(script.text)
        ((before,),) = on.execute(count).fetchall()  # type: ignore[call-overload]
        done = subprocess.run(
            [
                deployment.servers.pgbench, "-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(seconds),
                "-D", "n=0", "-f", path, "-h", "127.0.0.1", "-p", str(cluster.port), "-U", "postgres",
                deployment.database,
            ],
            env={**os.environ, "PGPASSWORD": cluster.superuser_password, "LC_ALL": "C"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        per_second = re.search(r"tps = ([\d.]+)", done.stdout)
        ran = re.search(r"number of transactions actually processed: (\d+)", done.stdout)
        if done.returncode != 0 or per_second is None or ran is None:
            raise SuiteFailed(f"pgbench failed: {_first_error(done.stderr or done.stdout)}")
        ((after,),) = on.execute(count).fetchall()  # type: ignore[call-overload]
        share = (after - before) / int(ran[1])
        if not 0.98 < share <= 1:
            raise SuiteFailed(f"pgbench: {ran[1]} transactions left {after - before} rows in {script.table}")
        if script is not JOIN:
            for statement in _RESTORE:
                on.execute(statement)  # type: ignore[call-overload]
    return float(per_second[1]) * share


def _first_error(output: str) -> str:
    lines = output.strip().splitlines()
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "it printed nothing")
