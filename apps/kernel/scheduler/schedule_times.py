"""The minutes of a schedule: one minute, or a cron expression in a time zone.

Clocks are set forward and back. An expression that names hours ("30 2 * * *") runs once on each of its days: a minute
that the clock skips runs right after the gap, and a minute that it shows twice runs the first time. An expression with
every hour ("*/15 * * * *") follows the time that passes, so it also runs in the repeated hour. These are the rules of
Debian's cron.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from apps.kernel.form_fields import local_time

CRON_CHARACTERS_MAX = 100
FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")


class InvalidSchedule(ValueError):
    """The expression cannot be used. The message is for its author."""


def is_zone(time_zone: str) -> bool:
    """Return whether it is the IANA name of a time zone."""
    return local_time.is_timezone(time_zone)


def require_cron(cron: str, time_zone: str, after: datetime) -> datetime:
    """Return the first minute of the expression after this moment. Raises InvalidSchedule for one that is not valid, or
    that matches no minute."""
    if not (cron.isascii() and cron.isprintable() and len(cron) <= CRON_CHARACTERS_MAX and len(cron.split()) == 5):
        raise InvalidSchedule(f"five fields are needed: {', '.join(FIELDS)}")
    first = next_minute(cron, time_zone, after)
    if first is None:
        raise InvalidSchedule("this expression matches no minute")
    return first


def next_minute(cron: str, time_zone: str, after: datetime) -> datetime | None:
    """Return the first minute of the expression after this moment, in UTC; None if there is none."""
    return next(minutes(cron, time_zone, after), None)


def minutes(cron: str, time_zone: str, after: datetime) -> Iterator[datetime]:
    """Yield the minutes of the expression after this moment, in UTC. Raises InvalidSchedule, also for a wrong zone."""
    if not is_zone(time_zone):
        raise InvalidSchedule(f"{time_zone[:64]!r} is not the name of a time zone")
    try:
        found = CronSim(cron, after.astimezone(ZoneInfo(time_zone)))
        last = after
        for local in found:
            moment = local.astimezone(UTC)
            # In the repeated hour the library returns the first of two moments, which may have passed. Minutes in a gap
            # are all moved to its end.
            if moment > last:
                yield moment
                last = moment
    except CronSimError as error:
        raise InvalidSchedule(str(error)) from error
    except OverflowError:
        return


def is_closer_than(cron: str, gap: timedelta, after: datetime, *, within: timedelta = timedelta(days=3)) -> bool:
    """Return whether two minutes of the expression follow each other in less than `gap`, on a clock that is never set.
    Compared are those of `within`, from the first one in the hour of this moment or later. Raises InvalidSchedule."""
    # The whole hour: its earlier minutes have passed, but they come again.
    before = after.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(minutes=1)
    first = require_cron(cron, "UTC", before)
    compared = takewhile(lambda one: one <= first + within, minutes(cron, "UTC", before))
    return any(later - earlier < gap for earlier, later in pairwise(compared))


def whole_minute(moment: datetime) -> datetime:
    """Return the minute of this moment, in UTC."""
    return moment.astimezone(UTC).replace(second=0, microsecond=0)
