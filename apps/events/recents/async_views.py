"""Reads of recent searches on the fast path. `api_views` answers the same call on the site.

Each read gets its header from PostgreSQL, in a batch with the check of its session, and the list from Redis at the same
time (see the package's docstring): a browser's cookie names the copy, and the account of a session that this process
has read before is guessed. A wrong guess costs another read. While Redis is away or behind, PostgreSQL has the list,
too.
"""

import asyncio
from collections.abc import Collection
from typing import Any, NamedTuple

from django.conf import settings

from apps.accounts import facade as accounts
from apps.events.recents import history, redis_copy
from apps.events.recents.history import Recents, State
from apps.events.recents.owners import account_owner, browser_owner
from apps.kernel.db import reads, sql
from apps.kernel.fastpath import redis_connection
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.dispatcher import Route
from apps.kernel.fastpath.request import ForwardToSite, Request
from apps.kernel.fastpath.response import Reply, private_reply


class _Question(NamedTuple):
    """The session key of a request, or the name of its browser."""

    session_key: str
    browser: str


class _Found(NamedTuple):
    """An owner, the header of its history (empty: it has none), and whether searches are saved."""

    owner: str
    header: str
    is_on: bool


async def recent_searches(request: Request, _: str) -> Reply:
    """Return the same response as `RecentSearchesView.get`."""
    question = _question(request)
    if question is None:
        return private_reply(Recents().document())
    expected = question.browser or _guess_owner(question.session_key)
    copy = asyncio.create_task(_copies.ask(expected)) if expected else None
    try:
        found = await _headers.ask(question)
        if found is None:
            raise ForwardToSite
        if not found.header or not found.is_on:
            return private_reply(Recents(is_on=found.is_on).document())
        return private_reply((await _read(found, copy if found.owner == expected else None)).document())
    finally:
        if copy is not None:
            copy.cancel()


def _question(request: Request) -> _Question | None:
    """Return whose searches are asked for; None if the request has neither session nor browser. Raises
    ForwardToSite."""
    if settings.SESSION_COOKIE_NAME in request.COOKIES:
        session_key = accounts.session_key_of(request.COOKIES)
        if session_key is None:
            raise ForwardToSite
        return _Question(session_key, "")
    browser = browser_owner(request)
    return None if browser is None else _Question("", browser.name)


def _guess_owner(session_key: str) -> str:
    """Return the owner that the session had when this process last read it; empty if it has not."""
    account_id = accounts.guess_account_id(session_key)
    return "" if account_id is None else account_owner(account_id).name


async def _read(found: _Found, copy: "asyncio.Task[Any] | None") -> Recents:
    reply = await (copy or _copies.ask(found.owner))
    searches = redis_copy.searches_in(reply, found.header)
    if searches is not None:
        return Recents(searches)
    state = await _states.ask(found.owner)
    if reply is not None:
        _repair_later(found.owner)
    return Recents() if state is None else state.recents


async def load_copies(owners: list[str]) -> list[Any]:
    """Return Redis's reply about the copy of each owner, in order; None if Redis is away or has refused."""
    replies = await redis_connection.shared.execute([redis_copy.read_command(owner) for owner in owners])
    return [reply if isinstance(reply, list) else None for reply in replies or [None] * len(owners)]


def load_headers(questions: list[_Question]) -> reads.Read[list[_Found | None]]:
    """Read the header of each owner, in order; None if the site has to decide about the session."""
    sessions = [one.session_key for one in questions if one.session_key]
    browsers = [one.browser for one in questions if one.browser]

    def headers_of(account_ids: Collection[int]) -> list[sql.Call]:
        return [history.headers_call(account_owner(one).name for one in account_ids)] if account_ids else []

    # The headers are read together with what proves the accounts, and used if these are proven.
    credentials = [accounts.AccountCredentials(key) for key in sessions]
    calls = [history.headers_call(browsers)] if browsers else []
    users, rows = yield from accounts.read_accounts(credentials, calls, headers_of)
    by_session = {key: account_owner(user.pk).name for key, user in zip(sessions, users, strict=True) if user}
    owners = [by_session.get(one.session_key) if one.session_key else one.browser for one in questions]
    headers = history.headers_in(rows)
    return [None if owner is None else _Found(owner, *headers.get(owner, ("", True))) for owner in owners]


def load_states(owners: list[str]) -> list[State | None]:
    """Return the history of each owner, in order; None without one. Blocks."""
    states = history.read_states(owners)
    return [states.get(owner) for owner in owners]


_headers: BatchLoader[_Question, _Found | None] = BatchLoader(load_headers)
_copies: BatchLoader[str, Any] = BatchLoader(load_copies)
_states: BatchLoader[str, State | None] = BatchLoader(load_states)
_repairs: BatchLoader[str, None] = BatchLoader(redis_copy.repair)
_repair_tasks: set[asyncio.Task[None]] = set()


def _repair_later(owner: str) -> None:
    """Repair the owner's copy without delaying the response. A repair that fails is begun again by the next read."""
    task = asyncio.create_task(_repairs.ask(owner))
    _repair_tasks.add(task)
    task.add_done_callback(_on_repaired)


def _on_repaired(task: "asyncio.Task[None]") -> None:
    _repair_tasks.discard(task)
    if not task.cancelled():
        task.exception()  # Retrieved, so that asyncio does not log it.


ROUTES = (Route("GET", "search/recents", recent_searches, "recent searches", "read"),)
