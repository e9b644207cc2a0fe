"""`manage.py measure_plan_import`: time and memory of plan import and publication, for docs/performance.md."""

import json
import multiprocessing
import resource
import tempfile
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, connections

from apps.events.creation import EventSpec, create_event, plan_limits
from apps.events.demo.seats import Json, plan, row, seat, zone
from apps.events.models import Seat
from apps.events.plans import parse_plan, read_file
from apps.events.publication import publish_event
from apps.kernel import clock

SIZES = (600, 6_000, 60_000)
_SEATS_PER_ROW, _ROWS_PER_ZONE = 30, 20


class Command(BaseCommand):
    help = (
        "Imports and publishes plans of growing size and prints a table. Each runs in its own process, so that its "
        "peak memory is measured alone, and all use a temporary database that is dropped at the end."
    )

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--seats", type=int, nargs="+", default=list(SIZES), metavar="N")

    def handle(self, *args: Any, **options: Any) -> None:
        sizes = [size for size in options["seats"] if size > 0]
        if not sizes:
            raise CommandError("--seats needs numbers above 0")
        given = connection.settings_dict["NAME"]
        connection.settings_dict["TEST"]["NAME"] = f"measure_{given}"[:63]
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        try:
            self._measure_all(sizes)
        finally:
            connection.creation.destroy_test_db(given, verbosity=0)

    def _measure_all(self, sizes: list[int]) -> None:
        connections.close_all()
        context = multiprocessing.get_context("fork")
        self.stdout.write("| seats | file | parse | create draft | publish | seats/s | peak memory over idle |")
        self.stdout.write("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        with tempfile.TemporaryDirectory() as folder:
            for size in sizes:
                path = Path(folder, f"{size}.json")
                # In a process of its own, so that the memory for generating the plan is not counted.
                with context.Pool(1) as pool:
                    pool.apply(_write_plan_file, (size, path))
                with context.Pool(1) as pool:
                    self.stdout.write(pool.apply(_measure, (size, path)))


def _sample_plan(seats: int) -> Json:
    zones: list[Json] = []
    left = seats
    while left > 0:
        rows = []
        number = len(zones)
        at_x, at_y = number % 10 * 900.0, number // 10 * 700.0
        for index in range(_ROWS_PER_ZONE):
            count = min(_SEATS_PER_ROW, left)
            left -= count
            rows.append(
                row(
                    str(index + 1),
                    [
                        seat(f"{number}-{index}-{n}", n + 1, at_x + n * 25, at_y + index * 30, "Seated")
                        for n in range(count)
                    ],
                )
            )
            if left == 0:
                break
        zones.append(zone(f"Block {number + 1}", rows))
    return plan(f"{seats} seats", 9_000, 8_000, {"Seated": "#0f766e"}, zones)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _write_plan_file(seats: int, path: Path) -> None:
    path.write_text(json.dumps(_sample_plan(seats)), encoding="utf-8")


def _measure(seats: int, path: Path) -> str:
    # Load modules and connect before the clock starts.
    parse_plan(json.dumps(_sample_plan(10)).encode())
    connection.ensure_connection()
    idle = _peak_mib()
    data = read_file(path, plan_limits())
    slug = f"measured-{uuid.uuid4().hex}"
    spec = EventSpec(
        slug=slug,
        name="Measured",
        venue=slug,
        starts_at=clock.now() + timedelta(days=30),
        currency="USD",
        plan=data,
        prices={"Seated": 100},
        draft=True,
    )
    started = time.perf_counter()
    parse_plan(data)
    parsed = time.perf_counter()
    event_id = create_event(spec).event_id
    drafted = time.perf_counter()
    publish_event(event_id)
    published = time.perf_counter()
    peak = _peak_mib() - idle
    written = Seat.objects.filter(event_id=event_id).count()
    if written != seats:
        raise CommandError(f"{written} seats were written of {seats}")
    return (
        f"| {seats:,} | {len(data) / 1e6:.1f} MB | {parsed - started:.2f} s | {drafted - parsed:.2f} s |"
        f" {published - drafted:.2f} s | {seats / (published - drafted):,.0f} | {peak:.0f} MiB |"
    )
