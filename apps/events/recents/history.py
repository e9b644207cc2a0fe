"""The searches of an owner in PostgreSQL: each change is one transaction with its outbox message."""

import hashlib
import logging
import unicodedata
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import DatabaseError, connection
from django.http import HttpRequest

from apps.events.models import ArchivedSearch, RecentSearch, SearchHistory
from apps.events.models.recents import TEXT_CHARACTERS_MAX
from apps.events.recents.owners import Owner, account_owner, browser_owner, redis_key_of
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import problems
from apps.kernel.outbox import facade as outbox

logger = logging.getLogger(__name__)

SEARCHES_MAX = 10
CHANGED = "events.recent_searches_changed"
"""The topic of outbox messages. Their body has the owner's key in Redis, and the id of the history."""

_begin_version = sql.load("apps.events", "begin_history_version")
_headers = sql.load("apps.events", "history_headers", prepared=True)


class Recents(NamedTuple):
    """The recent searches of an owner, newest first, and whether searches are saved: if not, there are none."""

    searches: tuple[str, ...] = ()
    is_on: bool = True

    def document(self) -> dict[str, Any]:
        """Return the public form."""
        return {"is_on": self.is_on, "searches": [{"q": text} for text in self.searches]}


class State(NamedTuple):
    """What PostgreSQL has of a history in one moment."""

    header: str
    """Identifies the state: `id.version.stamp`."""
    version: tuple[int, int]
    """The history's id and version: higher in a later state."""
    recents: Recents


def clean(text: object) -> str:
    """Return the search words as they are saved: without a NUL, in one line with single spaces. Raises Invalid."""
    if not isinstance(text, str):
        raise problems.Invalid({"q": "must be a string"})
    words = " ".join(text.replace("\x00", " ").split())
    if not words or len(words) > TEXT_CHARACTERS_MAX or not sql.is_text(words):
        raise problems.Invalid({"q": f"must have 1 to {TEXT_CHARACTERS_MAX} characters"})
    return words


def _digest(text: str) -> str:
    """Return the same value for searches that differ in case and compatible characters only."""
    # A digest, because folding makes some texts longer than an index allows.
    folded = unicodedata.normalize("NFKC", text).casefold()
    return hashlib.sha256(folded.encode()).hexdigest()[:32]


def record(owner: Owner, text: str) -> Recents:
    """Save a search as the newest one and return the list; nothing is saved if the owner has switched that off.
    `text` is from `clean`."""
    with transactions.write():
        with connection.cursor() as cursor:
            rows = _begin_version.rows(cursor, owner=owner.name, account_id=owner.account_id)
        if not rows:
            return Recents(is_on=False)
        ((history_id, version),) = rows
        # The history is locked: of two searches at once, the second sees the first, and has the higher version.
        searches = RecentSearch.objects.filter(history=history_id)
        searches.filter(digest=_digest(text)).delete()
        RecentSearch.objects.create(
            history_id=history_id, digest=_digest(text), text=text, number=version, searched_at=clock.now()
        )
        kept = list(searches.order_by("-number").values_list("number", "text")[:SEARCHES_MAX])
        if len(kept) == SEARCHES_MAX:
            searches.filter(number__lt=kept[-1][0]).delete()
        _publish(history_id, owner.name)
    return Recents(tuple(kept_text for _, kept_text in kept))


def delete(owner: Owner, text: str) -> None:
    """Delete a search from the list, and what is archived of it."""
    with transactions.write():
        history = _lock(owner)
        if history is None:
            return
        digest = _digest(text)
        count, _ = RecentSearch.objects.filter(history=history, digest=digest).delete()
        archived = ArchivedSearch.objects.filter(history=history).values_list("pk", "text")
        old = [pk for pk, archived_text in archived if _digest(archived_text) == digest]
        ArchivedSearch.objects.filter(pk__in=old).delete()
        if count:
            save_change(history)


def clear(owner: Owner) -> None:
    """Delete all searches of the owner, archived ones too."""
    with transactions.write():
        history = _lock(owner)
        if history is not None:
            _delete_searches(history)
            save_change(history)


def switch(owner: Owner, *, is_on: bool) -> None:
    """Save searches from now on, or save none and delete all. A search that commits later than this is not saved."""
    with transactions.write():
        history = _lock(owner)
        if history is None and not is_on:
            with connection.cursor() as cursor:
                _begin_version.rows(cursor, owner=owner.name, account_id=owner.account_id)
            history = _lock(owner)  # Created, or locked, by the statement before.
        if history is None or history.is_on == is_on:
            return
        history.is_on = is_on
        _delete_searches(history)
        save_change(history)


def merge_at_log_in(request: HttpRequest, account_id: int) -> None:
    """Move the browser's searches to the account, and have its copy in Redis written. Never prevents a log-in: what
    could not be moved is moved with the account's next search."""
    try:
        merge(browser_owner(request), account_id)
        _publish_for_warming(account_id)
    except DatabaseError as error:
        if not transactions.is_transient(error):
            raise
        logger.warning("recent searches are merged later: %s", error)


def merge(browser: Owner | None, account_id: int) -> bool:
    """Move the browser's searches to the account: the newest ten of both stay, without doubles. Returns whether the
    browser had any. If the account has none saved, the browser's are deleted. A browser that has none saved keeps that
    choice."""
    if browser is None or not SearchHistory.objects.filter(owner=browser.name, searches__isnull=False).exists():
        return False
    account = account_owner(account_id)
    with transactions.write():
        owners = SearchHistory.objects.filter(owner__in=[browser.name, account.name])
        locked = {one.owner: one for one in owners.select_for_update(no_key=True).order_by("pk")}
        guest = locked.get(browser.name)
        if guest is None or not guest.searches.exists():
            return False  # Another log-in of this browser has moved them.
        # The account's history may not exist yet, or have been created since: this locks it, too. No transaction that
        # has it locked waits for the browser's.
        with connection.cursor() as cursor:
            rows = _begin_version.rows(cursor, owner=account.name, account_id=account_id)
        if rows:
            ((history_id, _),) = rows
            own = SearchHistory.objects.get(pk=history_id)
            _merge_searches(guest, own)
            save_change(own)
        publish_deletion(guest)
        guest.delete()
    return True


def _merge_searches(guest: SearchHistory, own: SearchHistory) -> None:
    """Replace the searches of `own`, which has begun a version, by the newest of both. Raises its version further: each
    search has a number of its own. Joins the caller's transaction."""
    newest: dict[str, tuple[datetime, str]] = {}
    both = RecentSearch.objects.filter(history__in=[guest, own]).order_by("searched_at", "number")
    for digest, text, searched_at in both.values_list("digest", "text", "searched_at"):
        newest.pop(digest, None)
        newest[digest] = (searched_at, text)
    RecentSearch.objects.filter(history=own).delete()
    merged = list(newest.items())[-SEARCHES_MAX:]
    RecentSearch.objects.bulk_create(
        RecentSearch(history=own, digest=digest, text=text, number=own.version + index, searched_at=searched_at)
        for index, (digest, (searched_at, text)) in enumerate(merged)
    )
    own.version += len(merged)


def _publish_for_warming(account_id: int) -> None:
    """Have the account's copy in Redis written in the background, if the account has a history."""
    found = SearchHistory.objects.filter(account=account_id).values_list("pk", "owner").first()
    if found is not None:
        with transactions.write():
            _publish(*found)


def _lock(owner: Owner) -> SearchHistory | None:
    return SearchHistory.objects.select_for_update(no_key=True).filter(owner=owner.name).first()


def _delete_searches(history: SearchHistory) -> None:
    RecentSearch.objects.filter(history=history).delete()
    ArchivedSearch.objects.filter(history=history).delete()


def save_change(history: SearchHistory) -> None:
    """Save the locked history as its next version, and publish that. Joins the caller's transaction."""
    history.version += 1
    history.stamp = uuid.uuid4()
    history.changed_at = clock.now()
    history.save()
    _publish(history.pk, history.owner)


def publish_deletion(history: SearchHistory) -> None:
    """Publish that the locked history is deleted. Joins the caller's transaction, which deletes it."""
    _publish(history.pk, history.owner)


def _publish(history_id: int, owner: str) -> None:
    # In the order of commits: every caller has locked the history, except the one that only has a copy written.
    outbox.publish(CHANGED, str(history_id), {"history": history_id, "key": redis_key_of(owner)})


def read(owner: Owner) -> Recents:
    """Return the recent searches as PostgreSQL has them."""
    state = read_states([owner.name]).get(owner.name)
    return Recents() if state is None else state.recents


def read_states(names: Iterable[str]) -> Mapping[str, State]:
    """Return the histories of these owners, by the owner's name, without owners that have none. One statement: each
    header belongs to its searches."""
    rows = SearchHistory.objects.filter(owner__in=list(names)).order_by("pk", "-searches__number")
    found: dict[str, State] = {}
    for owner, pk, version, stamp, is_on, text in rows.values_list(
        "owner", "pk", "version", "stamp", "is_on", "searches__text"
    ):
        known = found.get(owner)
        searches = (*(known.recents.searches if known else ()), *((text,) if text is not None else ()))
        found[owner] = State(header(pk, version, stamp), (pk, version), Recents(searches, is_on))
    return found


def headers_call(names: Iterable[str]) -> sql.Call:
    """Return the statement that reads the headers of these owners' histories, for `headers_in`."""
    return _headers.call(owners=list(names))


def headers_in(rows: Iterable[Sequence[Any]]) -> Mapping[str, tuple[str, bool]]:
    """Return the header of each history, and whether searches are saved, by the owner's name."""
    return {owner: (header(pk, version, stamp), is_on) for owner, pk, version, stamp, is_on in rows}


def header(history_id: int, version: int, stamp: uuid.UUID) -> str:
    return f"{history_id}.{version}.{stamp.hex}"
