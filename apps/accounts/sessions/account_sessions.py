"""The sessions of an account, for its owner: a list, and the end of one of them or of all others.

A session's row in `AccountSession` only describes it. Whether it is valid is decided by Django's session and the
account's version, so a missing, outdated or left-over row of the list opens nothing and keeps nothing open.
"""

from collections.abc import Collection
from datetime import timedelta

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, update_session_auth_hash
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from apps.accounts import pending_address, security_log
from apps.accounts.models import AccountSession, User
from apps.accounts.security_log import network_and_browser
from apps.accounts.tokens import versions
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http.sessions import SessionStore, stored_key

SHOWN_MAX = 50
KEPT_MAX = 100
"""Sessions of an account that stay valid when one of them is ended: those used last. Each of them is written anew."""
ENDS_OF_OTHERS_PER_HOUR_MAX = 5
_DELETED_AT_ONCE = 10_000


def record(request: HttpRequest, user: User) -> None:
    """Note that the account's session is used now, in one statement. The request has a stored session."""
    key, now = request.session.session_key, clock.process_now()
    if key is None:
        return
    network, agent = network_and_browser(request.META)
    AccountSession.objects.bulk_create(
        [
            AccountSession(
                session_key=stored_key(key), account=user, account_version=user.token_version, begun_at=now,
                last_seen_at=now, address=network, user_agent=agent,
            )
        ],
        update_conflicts=True,
        unique_fields=["session_key"],
        update_fields=["account", "account_version", "last_seen_at", "address", "user_agent"],
    )  # fmt: skip


def list_sessions(user: User) -> list[AccountSession]:
    """Return the account's valid sessions, the one used last first."""
    return list(_valid(user).order_by("-last_seen_at", "-pk")[:SHOWN_MAX])


def _valid(user: User) -> QuerySet[AccountSession]:
    stored = Session.objects.filter(session_key=OuterRef("session_key"), expire_date__gt=clock.process_now())
    return AccountSession.objects.filter(Exists(stored), account=user, account_version=user.token_version)


def end_session(request: HttpRequest, user: User, session_id: int) -> bool:
    """End this session of the account, and all tokens of the account, and commit. The other sessions stay valid, if
    they are among the KEPT_MAX that were used last. Return False, and change nothing, if the account has no such
    session any more.

    The session may have got tokens for queue entries and have streams open. Raising the account's version ends those in
    every process, as a log-out everywhere does; the other sessions are moved to the new version in the same
    transaction. A session that begins or is saved by a request of its own in this moment may end, too: it is then
    logged out, and never left open.
    """
    with transactions.write():
        # The lock serializes two ends of sessions of one account.
        account = User.objects.select_for_update(no_key=True).get(pk=user.pk)
        before = account.get_session_auth_hash()
        rows = dict(_valid(account).order_by("-last_seen_at", "-pk").values_list("pk", "session_key"))
        ended = rows.pop(session_id, None)
        if ended is None:
            return False
        Session.objects.filter(session_key=ended).delete()
        AccountSession.objects.filter(pk=session_id).delete()
        versions.raise_version(account)
        kept = dict([*rows.items()][:KEPT_MAX])
        _move_sessions(kept.values(), before, account.get_session_auth_hash())
        AccountSession.objects.filter(pk__in=kept).update(account_version=account.token_version)
    # This request still has its session as it was before, and may save it.
    user.token_version = account.token_version
    request.session[HASH_SESSION_KEY] = account.get_session_auth_hash()
    return True


def end_others(request: HttpRequest, user: User) -> bool:
    """End all sessions of the account but this one, all its tokens, and its change of address, and commit. Return
    False, and change nothing, if that has been done ENDS_OF_OTHERS_PER_HOUR_MAX times within an hour: a thief who is
    logged in could otherwise end each new session of the owner.

    Raises AccountChanged, and changes nothing, if this session has itself been ended since `user` was read.
    """
    with transactions.write():
        user.lock_unchanged()
        ends = security_log.count_recent(user, security_log.Kind.LOGGED_OUT_EVERYWHERE, timedelta(hours=1))
        if ends >= ENDS_OF_OTHERS_PER_HOUR_MAX:
            return False
        versions.raise_version(user)
        pending_address.drop(user)
        security_log.record(request, security_log.Kind.LOGGED_OUT_EVERYWHERE, user)
    update_session_auth_hash(request, user)
    return True


def _move_sessions(keys: Collection[str], before: str, after: str) -> None:
    """Give these stored sessions of the account its new digest. Joins the caller's transaction."""
    store, moved = SessionStore(), []
    for row in Session.objects.select_for_update(no_key=True).filter(session_key__in=keys).order_by("session_key"):
        data = store.decode(row.session_data)
        if constant_time_compare(str(data.get(HASH_SESSION_KEY, "")), before):
            row.session_data = store.encode(data | {HASH_SESSION_KEY: after})
            moved.append(row)
    Session.objects.bulk_update(moved, ["session_data"])


def is_of_request(session: AccountSession, request: HttpRequest) -> bool:
    key = request.session.session_key
    return key is not None and session.session_key == stored_key(key)


def delete_ended() -> int:
    """Delete the rows of sessions that have ended, or were not used for as long as a session lasts; return how many."""
    unused = clock.process_now() - timedelta(seconds=settings.SESSION_COOKIE_AGE)
    stored = Session.objects.filter(session_key=OuterRef("session_key"))
    ended = AccountSession.objects.filter(~Exists(stored)) | AccountSession.objects.filter(last_seen_at__lt=unused)
    return AccountSession.objects.filter(pk__in=list(ended.values_list("pk", flat=True)[:_DELETED_AT_ONCE])).delete()[0]
