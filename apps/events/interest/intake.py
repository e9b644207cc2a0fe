"""Views that have arrived at this process: a bounded list in memory, appended to the log by group commit.

Accepting a view is one append to the list. While one batch is being written, further views gather for the next one; the
first view of an idle process waits GATHER_SECONDS for others. Views show interest; no money depends on them: a process
that is killed loses what it has not written, and a full list drops views, which a metric counts.
"""

import asyncio
import logging
import re
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any, NamedTuple, cast

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from prometheus_client import Counter, Gauge

from apps.accounts import facade as accounts
from apps.events.interest import identities
from apps.events.interest.log import BATCH_VIEWS_MAX, Batch, View, appends
from apps.events.interest.rules import READ_SECONDS, Rules, read_rules
from apps.events.models import Event, Membership
from apps.kernel import clock
from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.cache import RefreshingCache
from apps.kernel.http import problems
from apps.kernel.http.request_types import AnyRequest
from apps.kernel.http.sessions import SessionStore, stored_key
from apps.kernel.observability.repeated_errors import RepeatedErrors

logger = logging.getLogger(__name__)

WAITING_MAX = 20_000
"""Views that may wait in a process: four seconds of 5,000 a second."""
GATHER_SECONDS = 0.2
RETRY_SECONDS = 1.0
STALE_SECONDS = 86_400.0
"""While PostgreSQL is away, the last rules stay in use for this long."""
APPEND_TIMEOUT_MS = 5_000
SECONDS_MAX = 86_400
HOST = "[A-Za-z0-9._-]{0,253}"
_HOST = re.compile(HOST)
_FAILING = "views were not written; they are kept and written later"

_accepted = Counter("fairgate_views_accepted", "Views that were accepted.", registry=None)
_dropped = Counter("fairgate_views_dropped", "Views that were dropped because too many waited.", registry=None)
_waiting = Gauge("fairgate_views_waiting_count", "Views that are not written yet.", registry=None)
METRICS = (_accepted, _dropped, _waiting)
"""Metrics of this process; the composition root registers them where it serves metrics."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a process needs to accept a view: the rules in force, and the key of the day."""

    rules: Rules
    key: bytes


def _read_terms(day: date) -> Terms:
    return Terms(read_rules(), identities.read_key(day))


terms: RefreshingCache[date, Terms] = RefreshingCache(
    _read_terms, fresh_seconds=READ_SECONDS, stale_seconds=STALE_SECONDS, most=2
)
"""The terms of a day, read anew every 60 seconds."""


class Report(NamedTuple):
    """What the page's script reports."""

    seconds: int
    """How long the page has been visible."""
    referrer: str
    """The host that linked to the page, lower case; empty if it was opened in another way."""


class Arrived(NamedTuple):
    """A view as it arrived. The session's key is in memory only, until the batch is written."""

    view: View
    session_key: str


def arrive(terms: Terms, request: AnyRequest, address: str, event_id: int, report: Report) -> Arrived:
    """Return the view of this request. Nothing of it is kept but digests, except the session's key for a moment."""
    user_agent = request.headers.get("User-Agent", "")
    cookie = request.headers.get("Cookie", "")
    view = View(
        event_id,
        identities.person_digest(terms.key, cookie, address, user_agent),
        identities.address_digest(terms.key, address),
        report.seconds,
        False,
        terms.rules.is_bot(user_agent),
        terms.rules.id,
        report.referrer,
    )
    has_session = settings.SESSION_COOKIE_NAME in cookie
    return Arrived(view, request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")[:64] if has_session else "")


def parse_report(body: Mapping[str, Any]) -> Report:
    """Return the report in a request's body. Raises problems.Invalid."""
    wrong: dict[str, Any] = {name[:80]: "unknown field" for name in body if name not in Report._fields}
    seconds, referrer = body.get("seconds"), body.get("referrer", "")
    if type(seconds) is not int or not 0 <= seconds <= SECONDS_MAX:
        wrong["seconds"] = f"a whole number from 0 to {SECONDS_MAX}"
    if not isinstance(referrer, str) or not _HOST.fullmatch(referrer):
        wrong["referrer"] = "the name of a host, at most 253 characters, or empty"
    if wrong:
        raise problems.Invalid(wrong)
    return Report(cast("int", seconds), cast("str", referrer).lower().removeprefix("www."))


class Intake:
    """The views that wait in this process, and the task that writes them. Used on one event loop."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._waiting_max = waiting_max
        self._errors = RepeatedErrors(logger)
        self._waiting: deque[Arrived] = deque()
        self._task: asyncio.Task[None] | None = None
        self._batch: Batch | None = None
        """The batch of the first views, until it is known to be committed."""

    def accept(self, arrived: Arrived) -> bool:
        """Add a view to the list; it will be written soon. Return False if it was dropped because the list is full."""
        if len(self._waiting) >= self._waiting_max:
            _dropped.inc()
            return False
        self._waiting.append(arrived)
        _accepted.inc()
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            self._task = asyncio.get_running_loop().create_task(self._write_all())
        return True

    async def close(self) -> None:
        """Write the views that wait, if PostgreSQL is available, and end the task."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        try:
            await self.write()
        except Exception as error:  # noqa: BLE001 - the process ends
            logger.warning("%s views are lost: %s", len(self._waiting), error)

    async def write(self) -> None:
        """Write all views that wait, batch after batch. Raises what the append raises; the views are then kept.

        The views of a batch leave the list when it is committed. If its answer was lost, or this coroutine was
        canceled, the same batch is submitted again, and the log recognizes it.
        """
        while self._batch is not None or self._waiting:
            if self._batch is None:
                arrived = list(islice(self._waiting, BATCH_VIEWS_MAX))
                self._batch = Batch(uuid.uuid4(), await _without_sessions(arrived))
            await appends.submit(self._batch)
            for _ in self._batch.views:
                self._waiting.popleft()
            self._batch = None
            _waiting.set(len(self._waiting))

    async def _write_all(self) -> None:
        while self._waiting:
            _waiting.set(len(self._waiting))
            await asyncio.sleep(GATHER_SECONDS)
            try:
                await self.write()
                self._errors.over(_FAILING)
            except Exception as error:  # noqa: BLE001 - PostgreSQL is away or busy
                self._errors.record_failure(_FAILING, error)
                await asyncio.sleep(RETRY_SECONDS)


async def _without_sessions(arrived: Sequence[Arrived]) -> list[View]:
    if any(one.session_key for one in arrived):
        return await thread_pool.run_in_thread(mark_staff, arrived)
    return [one.view for one in arrived]


def mark_staff(arrived: Sequence[Arrived]) -> list[View]:
    """Return the views, those of staff of the event's organizer marked: its members, and operators of the whole site.
    Blocks."""
    account_ids = _accounts_of({one.session_key for one in arrived if one.session_key})
    if not account_ids:
        return [one.view for one in arrived]
    organizers = dict(
        Event.objects.filter(pk__in={one.view.event_id for one in arrived if one.session_key}).values_list(
            "pk", "organizer_id"
        )
    )
    members = set(
        Membership.objects.filter(user_id__in=set(account_ids.values())).values_list("user_id", "organizer_id")
    )
    operators = set(
        accounts.User.objects.filter(pk__in=set(account_ids.values()), is_superuser=True).values_list("pk", flat=True)
    )

    def is_staff(one: Arrived) -> bool:
        account_id = account_ids.get(one.session_key)
        if account_id is None:
            return False
        return account_id in operators or (account_id, organizers.get(one.view.event_id)) in members

    return [one.view._replace(is_staff=is_staff(one)) for one in arrived]


def _accounts_of(session_keys: set[str]) -> dict[str, int]:
    """Return the account of each of these sessions that is logged in."""
    if not session_keys:
        return {}
    stored = {stored_key(key): key for key in session_keys}
    rows = Session.objects.filter(session_key__in=list(stored), expire_date__gt=clock.process_now())
    store = SessionStore()
    found = {}
    for key, data in rows.values_list("session_key", "session_data"):
        account_id = str(store.decode(data).get(SESSION_KEY, ""))
        if account_id.isdecimal():
            found[stored[key]] = int(account_id)
    return found


intake = Intake()
"""The views of this process of `web`."""
