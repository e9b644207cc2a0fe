"""Reads times on the clock of a time zone, and refuses those that the clock skips or shows twice."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo, available_timezones

EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""Moments that are typed lie between these: far from the years in which a conversion to another zone overflows."""


class InvalidLocalTime(ValueError):
    """The clock of the zone never shows this time, or shows it twice. The message is a sentence for its author."""


class AmbiguousLocalTime(InvalidLocalTime):
    """The clock shows this time twice. `first` is the first of the two moments, with its offset."""

    def __init__(self, message: str, first: datetime) -> None:
        super().__init__(message)
        self.first = first


def resolve_local_time(moment: datetime, zone: str) -> datetime:
    """Return the moment in UTC; without an offset it is on the clock of `zone`. Raises InvalidLocalTime for a time that
    does not exist or occurs twice, because clocks change, and OverflowError."""
    if moment.tzinfo is not None:
        return moment.astimezone(UTC)
    clock = ZoneInfo(zone)
    first, second = moment.replace(tzinfo=clock), moment.replace(tzinfo=clock, fold=1)
    if first.utcoffset() == second.utcoffset():
        return first.astimezone(UTC)
    shown = f"{moment:%Y-%m-%d %H:%M}"
    offsets = [one.isoformat(timespec="minutes") for one in (first, second)]
    # The clock skips a time if the moment that it stands for is shown as another one.
    if first.astimezone(UTC).astimezone(clock).replace(tzinfo=None) != moment:
        raise InvalidLocalTime(f"{shown} does not exist in {zone}: clocks are set forward then. Enter another time.")
    raise AmbiguousLocalTime(
        f"{shown} is ambiguous: it occurs twice in {zone}, because clocks are set back then. "
        f"Enter {offsets[0]} for the first or {offsets[1]} for the second.",
        first,
    )


@cache
def timezone_names() -> frozenset[str]:
    return frozenset(available_timezones())


def is_timezone(name: str) -> bool:
    """Return whether this is a known IANA time zone name."""
    return name in timezone_names()


_REGIONS = (
    "Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific",
)  # fmt: skip


@cache
def _current_names() -> frozenset[str]:
    """Return the names of zones that countries use, without their former names such as Asia/Calcutta; and UTC."""
    lines = resources.files("tzdata").joinpath("zoneinfo", "zone.tab").read_text(encoding="utf-8").splitlines()
    used = {line.split("\t")[2] for line in lines if line and not line.startswith("#")}
    return frozenset(used | {"UTC"}) & timezone_names()


@cache
def timezone_choices(keep: str = "") -> Sequence[tuple[str, Sequence[tuple[str, str]]]]:
    """Return the zones for a form, by region: each zone's name, and its city as people write it, "Buenos Aires,
    Argentina". The last group has the zones without a city, by their names. `keep`: a known former name of a zone,
    offered too because it is in use."""
    groups: dict[str, list[tuple[str, str]]] = {region: [] for region in _REGIONS}
    rest = []
    for name in _current_names() | ({keep} & timezone_names()):
        region, *parts = name.split("/")
        if region in groups and parts:
            groups[region].append((name, ", ".join(reversed(parts)).replace("_", " ")))
        else:
            rest.append((name, name))
    rest.sort(key=lambda choice: (choice[0] != "UTC", choice[0]))
    named = [(region, tuple(sorted(zones, key=lambda choice: choice[1]))) for region, zones in groups.items() if zones]
    return (*named, ("Without a city", tuple(rest)))
