"""The holds that the source documents propose, each in the best form known to us.

Every strategy has its own tables: the seats of the hall, a section's counter, sixteen buckets, a row per unit,
reservations with their lines, and a ledger. Every hold inserts a reservation, its lines and a ledger row, as Fairgate's
does. Unlike Fairgate's, none of them has queue entries, idempotency keys, purchase limits or a check of the deadline.
Statements are prepared, the server binds the parameters, and each caller has its own connection.
"""
# ruff: noqa: S608 - Statements are assembled from common parts, all of them written here.

import os
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from redis import Redis

from tests.support.servers import temporary_server_folder
from ticketing.devserver import valkey
from ticketing.devserver.servers import new_password

QUANTITY = 2
"""The general admission quantity of one hold, and the number of seats of a named hold."""
BIG, SMALL = 1, 2
"""Sections: one that does not sell out, and one that does."""
SMALL_CAPACITY = 999
SMALL_QUANTITY = 3
BUCKETS = 16

TABLES = """
CREATE TABLE section (id int PRIMARY KEY, capacity int NOT NULL, remaining int NOT NULL CHECK (remaining >= 0),
                      version bigint NOT NULL DEFAULT 0);
CREATE TABLE bucket (section_id int, number int, remaining int NOT NULL CHECK (remaining >= 0),
                     PRIMARY KEY (section_id, number)) WITH (fillfactor = 50);
CREATE TABLE unit (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, section_id int NOT NULL, reservation_id uuid,
                   picked_at timestamptz);
CREATE TABLE seat (id bigint PRIMARY KEY, section_id int NOT NULL, status smallint NOT NULL, reservation_id uuid);
CREATE TABLE seat_section (id int PRIMARY KEY, remaining int NOT NULL CHECK (remaining >= 0));
CREATE TABLE reservation (id uuid PRIMARY KEY, buyer text NOT NULL, status text NOT NULL,
                          expires_at timestamptz NOT NULL, total_minor bigint NOT NULL, currency text NOT NULL,
                          created_at timestamptz NOT NULL);
CREATE TABLE line (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                   reservation_id uuid NOT NULL REFERENCES reservation, section_id int, seat_id bigint,
                   quantity int NOT NULL);
CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, reservation_id uuid NOT NULL,
                     to_status text NOT NULL, at timestamptz NOT NULL);
CREATE INDEX ON unit (section_id, id) WHERE reservation_id IS NULL;
CREATE INDEX ON reservation (expires_at) WHERE status = 'pending_payment';
CREATE INDEX ON line (reservation_id);
CREATE INDEX ON line (seat_id) WHERE seat_id IS NOT NULL;
"""
# No table starts empty: a plan made for an empty table would be kept for the whole session.
INITIAL_ROWS = """
INSERT INTO section VALUES (1, 100000000, 100000000), (2, %(small)s, %(small)s);
INSERT INTO bucket SELECT 1, n, 100000000 / %(buckets)s FROM generate_series(0, %(buckets)s - 1) AS n;
INSERT INTO bucket SELECT 2, n, %(small)s / %(buckets)s + (n < %(small)s %% %(buckets)s)::int
    FROM generate_series(0, %(buckets)s - 1) AS n;
INSERT INTO unit (section_id) SELECT 1 FROM generate_series(1, %(units)s);
INSERT INTO unit (section_id) SELECT 2 FROM generate_series(1, %(small)s);
INSERT INTO seat SELECT seat_id, section_id, 0, NULL FROM public.reservations_seatinventory
    WHERE event_id = ANY(%(event_ids)s) ORDER BY seat_id;
INSERT INTO seat_section SELECT section_id, count(*) FROM seat GROUP BY section_id;
INSERT INTO reservation SELECT md5(n::text)::uuid, 'visitor:' || n, 'confirmed', now(), 5000, 'USD', now()
    FROM generate_series(1, %(past)s) AS n;
INSERT INTO line (reservation_id, section_id, quantity) SELECT md5(n::text)::uuid, 0, 2
    FROM generate_series(1, %(past)s) AS n;
INSERT INTO ledger (reservation_id, to_status, at) SELECT md5(n::text)::uuid, 'pending_payment', now()
    FROM generate_series(1, %(past)s) AS n;
"""
PAST_RESERVATIONS = 10_000

_HEADER = """INSERT INTO reservation
    VALUES (%(id)s, %(buyer)s, 'pending_payment', now() + interval '10 min', 5000, 'USD', now())"""
_HEADER_IF_TAKEN = """header AS (
    INSERT INTO reservation
    SELECT %(id)s, %(buyer)s, 'pending_payment', now() + interval '10 min', 5000, 'USD', now() FROM {taken}
    RETURNING id
)"""
_LEDGER = "INSERT INTO ledger (reservation_id, to_status, at) VALUES (%(id)s, 'pending_payment', now())"
_QUANTITY_LINE = "INSERT INTO line (reservation_id, section_id, quantity) VALUES (%(id)s, %(section)s, %(quantity)s)"
_INSERT_IF_TAKEN = (
    _HEADER_IF_TAKEN.format(taken="taken")
    + """, lines AS (
    INSERT INTO line (reservation_id, section_id, quantity) SELECT id, %(section)s, %(quantity)s FROM header
)
INSERT INTO ledger (reservation_id, to_status, at) SELECT id, 'pending_payment', now() FROM header
"""
)

_LOCK_SECTION = "SELECT remaining FROM section WHERE id = %(section)s FOR NO KEY UPDATE"
_TAKE = "UPDATE section SET remaining = remaining - %(quantity)s WHERE id = %(section)s"
_TAKE_IF = _TAKE + " AND remaining >= %(quantity)s"
_READ_VERSION = "SELECT remaining, version FROM section WHERE id = %(section)s"
_TAKE_VERSION = (
    "UPDATE section SET remaining = remaining - %(quantity)s, version = version + 1"
    " WHERE id = %(section)s AND version = %(version)s"
)
_SINGLE = "WITH taken AS (" + _TAKE_IF + " RETURNING id), " + _INSERT_IF_TAKEN
_RECORD = (
    "WITH header AS (" + _HEADER + " RETURNING id), lines AS (INSERT INTO line (reservation_id, section_id, quantity)"
    " SELECT id, %(section)s, %(quantity)s FROM header)"
    " INSERT INTO ledger (reservation_id, to_status, at) SELECT id, 'pending_payment', now() FROM header"
)
_BUCKET = (
    """WITH picked AS (
    SELECT number FROM bucket WHERE section_id = %(section)s AND remaining >= %(quantity)s
    ORDER BY {order} LIMIT 1 FOR NO KEY UPDATE{skip}
), taken AS (
    UPDATE bucket SET remaining = remaining - %(quantity)s FROM picked
    WHERE bucket.section_id = %(section)s AND bucket.number = picked.number AND remaining >= %(quantity)s RETURNING 1
), """
    + _INSERT_IF_TAKEN
)
_BUCKET_SKIPPING = _BUCKET.replace("{skip}", " SKIP LOCKED").replace("{order}", "(number + %(start)s) %% 16")
# All callers use the same order: a caller that waited for a bucket which then had too little left keeps its lock and
# continues with the next one. With different starting points they deadlocked as soon as the buckets ran out.
_BUCKET_WAITING = _BUCKET.replace("{skip}", "").replace("{order}", "number")
_UNITS = (
    """WITH picked AS (
    SELECT id FROM unit WHERE section_id = %(section)s AND reservation_id IS NULL
    ORDER BY id LIMIT %(quantity)s FOR NO KEY UPDATE SKIP LOCKED
), enough AS (
    SELECT 1 FROM (SELECT count(*) AS found FROM picked) AS counted WHERE found = %(quantity)s
), marked AS (
    UPDATE unit SET reservation_id = %(id)s, picked_at = now() FROM picked, enough WHERE unit.id = picked.id
), taken AS (
    SELECT 1 FROM enough
), """
    + _INSERT_IF_TAKEN
)

_LOCK_SEATS = "SELECT id FROM seat WHERE id = ANY(%(seats)s) AND status = 0 ORDER BY id FOR NO KEY UPDATE"
_TAKE_SEATS = "UPDATE seat SET status = 1, reservation_id = %(id)s WHERE id = ANY(%(seats)s) AND status = 0"
_COUNT_DOWN = """UPDATE seat_section SET remaining = remaining - 1
    WHERE id IN (SELECT section_id FROM seat WHERE id = %(seat)s)"""
_SEATS_LINES = "INSERT INTO line (reservation_id, seat_id, quantity) SELECT %(id)s, unnest(%(seats)s::bigint[]), 1"
_SINGLE_SEATS = (
    """WITH free AS (
    SELECT id FROM seat WHERE id = ANY(%(seats)s) AND status = 0 ORDER BY id FOR NO KEY UPDATE
), enough AS (
    SELECT 1 FROM (SELECT count(*) AS found FROM free) AS counted WHERE found = cardinality(%(seats)s::bigint[])
), taken AS (
    UPDATE seat SET status = 1, reservation_id = %(id)s FROM free, enough WHERE seat.id = free.id RETURNING seat.id
), """
    + _HEADER_IF_TAKEN.format(taken="enough")
    + """, lines AS (
    INSERT INTO line (reservation_id, seat_id, quantity) SELECT header.id, taken.id, 1 FROM header, taken
)
INSERT INTO ledger (reservation_id, to_status, at) SELECT id, 'pending_payment', now() FROM header
"""
)

# One script checks for an earlier hold and for the count, and sets the count and the buyer's key with its expiry.
_GATE = """
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local left = tonumber(redis.call('GET', KEYS[1]))
if left == nil or left < tonumber(ARGV[1]) then return -1 end
redis.call('DECRBY', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], '1', 'EX', 600)
return 1
"""


# The lock is released only by its holder: it may have expired and have been taken by another.
_UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"
LOCK_SERVERS = 5
LOCK_SERVERS_VARIABLE = "REDLOCK_URLS"
LOCK_MS = 10_000
LOCK_PAUSE_SECONDS_MAX = 0.005


@dataclass(frozen=True)
class HoldRequest:
    number: int
    section: int
    quantity: int
    seats: list[int] = field(default_factory=list)

    def parameters(self) -> dict[str, Any]:
        return {
            "id": uuid.uuid4(),
            "buyer": f"visitor:visitor-{self.number}",
            "section": self.section,
            "quantity": self.quantity,
            "seats": self.seats,
        }


Hold = Callable[[psycopg.Connection[Any], HoldRequest], bool]


def pessimistic(on: psycopg.Connection[Any], request: HoldRequest) -> bool:
    """Lock, check, change, insert and commit: seven round trips, most of them with the row locked."""
    parameters = request.parameters()
    with on.cursor() as cursor, on.transaction():
        row = cursor.execute(_LOCK_SECTION, parameters).fetchone()
        assert row is not None
        if row[0] < request.quantity:
            return False
        cursor.execute(_TAKE, parameters)
        cursor.execute(_HEADER, parameters)
        cursor.execute(_QUANTITY_LINE, parameters)
        cursor.execute(_LEDGER, parameters)
    return True


def conditional(on: psycopg.Connection[Any], request: HoldRequest) -> bool:
    """Update the count without a read, on condition that enough are left; then insert in the same transaction."""
    parameters = request.parameters()
    with on.cursor() as cursor, on.transaction():
        if cursor.execute(_TAKE_IF, parameters).rowcount == 0:
            return False
        cursor.execute(_HEADER, parameters)
        cursor.execute(_QUANTITY_LINE, parameters)
        cursor.execute(_LEDGER, parameters)
    return True


def versioned(on: psycopg.Connection[Any], request: HoldRequest) -> bool:
    """Read, decide, and update the row only if its version is unchanged; otherwise repeat everything."""
    parameters = request.parameters()
    while True:
        with on.cursor() as cursor:
            row = cursor.execute(_READ_VERSION, parameters).fetchone()
            assert row is not None
            if row[0] < request.quantity:
                return False
            with on.transaction():
                if cursor.execute(_TAKE_VERSION, parameters | {"version": row[1]}).rowcount == 0:
                    continue
                cursor.execute(_HEADER, parameters)
                cursor.execute(_QUANTITY_LINE, parameters)
                cursor.execute(_LEDGER, parameters)
                return True


def single(on: psycopg.Connection[Any], request: HoldRequest) -> bool:
    """Do the same in one statement: one round trip, with the row locked for the statement and its commit."""
    return on.execute(_SINGLE, request.parameters()).rowcount == 1


def buckets(on: psycopg.Connection[Any], request: HoldRequest) -> bool:
    """Take from any unlocked bucket; if all buckets with enough left are locked, wait for one."""
    parameters = request.parameters() | {"start": random.randrange(BUCKETS)}  # noqa: S311
    return (
        on.execute(_BUCKET_SKIPPING, parameters).rowcount == 1 or on.execute(_BUCKET_WAITING, parameters).rowcount == 1
    )


def units(on: psycopg.Connection[Any], request: HoldRequest) -> bool:
    """Take the first unlocked rows of a table with a row for each ticket."""
    return on.execute(_UNITS, request.parameters()).rowcount == 1


def pessimistic_seats(on: psycopg.Connection[Any], request: HoldRequest) -> bool:
    """Lock the seats, check, change them and their section's counter, insert and commit: eight round trips."""
    parameters = request.parameters()
    with on.cursor() as cursor, on.transaction():
        if len(cursor.execute(_LOCK_SEATS, parameters).fetchall()) < len(request.seats):
            return False
        cursor.execute(_TAKE_SEATS, parameters)
        for seat in request.seats:
            cursor.execute(_COUNT_DOWN, parameters | {"seat": seat})
        cursor.execute(_HEADER, parameters)
        cursor.execute(_SEATS_LINES, parameters)
        cursor.execute(_LEDGER, parameters)
    return True


def single_seats(on: psycopg.Connection[Any], request: HoldRequest) -> bool:
    """Hold in one statement without a counter: free seats are counted on request."""
    return on.execute(_SINGLE_SEATS, request.parameters()).rowcount == 1


class Gate:
    """The count in Redis, decremented before PostgreSQL. A quantity that PostgreSQL refuses is added back."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.redis = Redis.from_url(os.environ["REDIS_URL"], max_connections=256)
        self.script = self.redis.register_script(_GATE)

    def key(self, section: int) -> str:
        return f"{self.schema}:{{{section}}}:left"

    def fill(self, section: int, quantity: int) -> None:
        self.redis.set(self.key(section), quantity)

    def before_postgres(self, on: psycopg.Connection[Any], request: HoldRequest) -> bool:
        if not self._take(request):
            return False
        if single(on, request):
            return True
        self.redis.incrby(self.key(request.section), request.quantity)
        return False

    def instead_of_postgres(self, on: psycopg.Connection[Any], request: HoldRequest) -> bool:
        """Decide in Redis; PostgreSQL only records the result."""
        return self._take(request) and on.execute(_RECORD, request.parameters()).rowcount == 1

    def _take(self, request: HoldRequest) -> bool:
        held = f"{self.schema}:{{{request.section}}}:hold:{request.number}"
        return self.script(keys=[self.key(request.section), held], args=[request.quantity]) == 1


class Redlock:
    """A section's lock over five servers, by the published algorithm: its holder has set the key on three of them, and
    the lock has not expired. With the lock, the count is changed as `conditional` does."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.servers = [Redis.from_url(url, max_connections=256) for url in lock_server_urls()]
        self.scripts = [server.register_script(_UNLOCK) for server in self.servers]

    def under_lock(self, on: psycopg.Connection[Any], request: HoldRequest) -> bool:
        key, token = f"{self.schema}:{request.section}:lock", uuid.uuid4().hex
        while True:
            begun = time.monotonic()
            votes = sum(bool(server.set(key, token, nx=True, px=LOCK_MS)) for server in self.servers)
            is_held = votes > LOCK_SERVERS // 2 and (time.monotonic() - begun) * 1_000 < LOCK_MS
            try:
                if is_held:
                    return conditional(on, request)
            finally:
                for script in self.scripts:
                    script(keys=[key], args=[token])
            time.sleep(random.uniform(0, LOCK_PAUSE_SECONDS_MAX))  # noqa: S311


@contextmanager
def lock_servers(are_needed: bool) -> Iterator[None]:
    """Start the five servers of Redlock for the block, if they are needed."""
    with ExitStack() as ends:
        urls = []
        for _ in range(LOCK_SERVERS if are_needed else 0):
            place, end = temporary_server_folder()
            ends.callback(end)
            urls.append(valkey.start(place, password=new_password()).url)
        os.environ[LOCK_SERVERS_VARIABLE] = ",".join(urls)
        yield


def lock_server_urls() -> list[str]:
    """Return the URLs of the five servers; none if no strategy needs them."""
    return [url for url in os.environ.get(LOCK_SERVERS_VARIABLE, "").split(",") if url]


def connect(schema: str) -> psycopg.Connection[Any]:
    return psycopg.connect(
        os.environ["DATABASE_URL"], autocommit=True, prepare_threshold=0, options=f"-c search_path={schema}"
    )


def make_tables(schema: str, event_ids: list[int], *, units: int) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as on:
        on.execute(f"CREATE SCHEMA {schema}")  # type: ignore[call-overload]
        on.execute(f"SET search_path = {schema}")  # type: ignore[call-overload]
        on.execute(TABLES)
        parameters = {
            "small": SMALL_CAPACITY,
            "buckets": BUCKETS,
            "units": units,
            "event_ids": event_ids,
            "past": PAST_RESERVATIONS,
        }
        with psycopg.ClientCursor(on) as cursor:
            cursor.execute(INITIAL_ROWS, parameters)
