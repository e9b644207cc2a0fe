"""Servers and waiting rooms for benchmarks: a separate deployment with any number of waiting visitors.

Queue entries are written by one INSERT … SELECT, as joins would have written them.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from tests.support.servers import temporary_server_folder
from ticketing.devserver import postgres, valkey
from ticketing.devserver.servers import Servers, new_password, start_disposable

if TYPE_CHECKING:
    from apps.events.facade import EventView

_FILL = """
INSERT INTO queue_queueentry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, joined_at)
SELECT gen_random_uuid(), %(event_id)s, number, false, decode(md5(random()::text), 'hex'), '',
       substr(md5(number::text || random()::text), 1, 24), 'waiting', clock_timestamp()
FROM generate_series(1, %(count)s) AS number
"""


@contextmanager
def start_servers(*, durable: bool = False) -> Iterator[Servers]:
    """Start new servers for the block and set up Django for them; `durable`: commits survive a power failure, as in
    production."""
    place, end = temporary_server_folder()
    try:
        if durable:
            cluster = postgres.start(place, password=new_password(), superuser_password=new_password())
            servers = Servers(cluster, valkey.start(place, password=new_password()))
        else:
            servers = start_disposable(place)
        assert servers.postgres is not None
        assert servers.valkey is not None
        os.environ["DATABASE_URL"] = servers.postgres.url()
        os.environ["REDIS_URL"] = servers.valkey.url
        os.environ["SECRET_KEY"] = "known-to-every-benchmark-and-good-for-nothing-else-" + new_password()
        os.environ["SANDBOX_BOOKS"] = str(place.folder / "sandbox" / "books.sqlite3")
        os.environ["LOG_LEVEL"] = "WARNING"
        os.environ["DJANGO_SETTINGS_MODULE"] = "ticketing.settings"
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        yield servers
    finally:
        end()


def make_full_room(slug: str, count: int) -> "EventView":
    """Create an event on sale for 100 tickets, with an open room of `count` waiting visitors, none admitted."""
    from django.db import connection

    from apps.events import facade as events
    from apps.events.creation import EventSpec, GeneralAdmission, create_event
    from apps.kernel import clock
    from apps.queue.models import WaitingRoom

    create_event(
        EventSpec(
            slug=slug,
            name=slug.title(),
            venue=f"Venue of {slug}",
            starts_at=clock.now() + timedelta(days=30),
            currency="USD",
            general_admission=(GeneralAdmission("Floor", 100, 1_000),),
            room=events.WaitingRoomSettings(rate_per_second=50, active_max=500),
            opens_at=clock.now() - timedelta(minutes=1),
        )
    )
    event = events.get_event(slug)
    begun = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute(_FILL, {"event_id": event.id, "count": count})
    WaitingRoom.objects.filter(event_id=event.id).update(state="open", next_number=count + 1)
    print(f"{slug}: {count:,} waiting, written in {time.perf_counter() - begun:.1f} s", flush=True)
    return event


def vacuum_tables() -> None:
    """Vacuum and analyze the tables."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE queue_queueentry")
