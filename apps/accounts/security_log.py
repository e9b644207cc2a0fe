"""The security log: log-ins, failed log-ins, changes of passwords and second factors, actions of staff, and reads of
personal data by staff."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from apps.accounts.models import NAME_LENGTH_MAX, SecurityEvent, User
from apps.kernel import clock
from apps.kernel.http import client_address
from apps.kernel.observability import access_log

Kind = SecurityEvent.Kind
ACTIVITY_SHOWN_MAX = 8
_OWN_ACTIVITY = (
    Kind.SIGNED_UP, Kind.LOGGED_IN, Kind.TOKENS_ISSUED, Kind.LOGGED_OUT_EVERYWHERE, Kind.DEVICE_LOGGED_OUT,
    Kind.PASSWORD_CHANGED, Kind.PASSWORD_RESET, Kind.EMAIL_CHANGED, Kind.SECOND_FACTOR_ADDED,
    Kind.SECOND_FACTOR_REMOVED, Kind.RECOVERY_CODES_CREATED, Kind.SECOND_FACTOR_RESET, Kind.PERSONAL_DATA_DOWNLOADED,
)  # fmt: skip
_DELETED_AT_ONCE = 10_000


def record(
    request: HttpRequest | None, kind: SecurityEvent.Kind, user: Any = None, *, name: str = "", detail: str = ""
) -> None:
    """Write an entry. `user` is the account, also an anonymous one; `name` a typed name without an account. Joins the
    caller's transaction, if there is one."""
    account = user if isinstance(user, User) else None
    network, agent = ("", "") if request is None else network_and_browser(request.META)
    SecurityEvent.objects.create(
        kind=kind,
        account=account,
        name=_printable(account.username if account is not None else name, NAME_LENGTH_MAX),
        address=network,
        user_agent=agent,
        detail=_printable(detail, 300),
    )


def network_and_browser(environ: dict[str, Any]) -> tuple[str, str]:
    """Return the client's network, shortened as in the access log, and its User-Agent header, printable."""
    network = access_log.shortened(client_address.address_from_environ(environ)) if environ else ""
    return network, _printable(environ.get("HTTP_USER_AGENT", ""), 200)


def has_logged_in_from(request: HttpRequest, name: str) -> bool:
    """Return whether the log has a log-in to the account with this name, or tokens for it, from the client's network.
    False if the log has no networks (ACCESS_LOG_ADDRESSES)."""
    address = access_log.shortened(client_address.address_from_environ(request.META))
    kinds = (Kind.LOGGED_IN, Kind.TOKENS_ISSUED)
    return (
        bool(address) and SecurityEvent.objects.filter(account__username=name, kind__in=kinds, address=address).exists()
    )


def list_own_activity(user: User) -> list[SecurityEvent]:
    """Return the latest log-ins to this account and changes of its credentials, newest first, for its owner."""
    return list(SecurityEvent.objects.filter(account=user, kind__in=_OWN_ACTIVITY).order_by("-pk")[:ACTIVITY_SHOWN_MAX])


def count_recent(user: User, kind: Kind, period: timedelta) -> int:
    """Return how many entries of this kind the account has of the last `period`."""
    return SecurityEvent.objects.filter(account=user, kind=kind, at__gte=clock.now() - period).count()


def delete_old() -> int:
    """Delete entries older than SECURITY_LOG_DAYS; return how many."""
    limit = clock.now() - timedelta(days=settings.SECURITY_LOG_DAYS)
    old = SecurityEvent.objects.filter(at__lt=limit).order_by("at").values("pk")[:_DELETED_AT_ONCE]
    deleted, _ = SecurityEvent.objects.filter(pk__in=old).delete()
    return deleted


def _printable(text: str, length_max: int) -> str:
    return "".join(character if character.isprintable() else "�" for character in text[:length_max])
