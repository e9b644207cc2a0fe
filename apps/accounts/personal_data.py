"""Personal data of an account itself: its export, and its erasure.

An erased account keeps its row, to which the security log refers, and can never be used again.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any
from urllib.parse import quote

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.contrib.admin.models import LogEntry
from django.db.models import Max, Q

from apps.accounts.models import AccountSession, SecurityEvent, User
from apps.kernel import clock
from apps.kernel.db import transactions

ERASED = "erased"
_EXPORTED_EVENTS_MAX = 10_000
_OF_STAFF = (SecurityEvent.Kind.STAFF_ACTION, SecurityEvent.Kind.PERSONAL_DATA_READ)


def accounts_of_address(email: str) -> list[int]:
    """Return the ids of the accounts with this email address or name, confirmed or not."""
    named = User.objects.filter(Q(email__iexact=email) | Q(username__iexact=email)).values_list("pk", flat=True)
    confirmed = EmailAddress.objects.filter(email__iexact=email, verified=True).values_list("user", flat=True)
    return sorted({*named, *confirmed})


def confirmed_addresses(account_id: int) -> list[str]:
    """Return the email addresses that the account's user has confirmed."""
    return list(
        EmailAddress.objects.filter(user=account_id, verified=True).order_by("pk").values_list("email", flat=True)
    )


def export_account(account_id: int) -> dict[str, Any]:
    """Return what is stored about the account itself, as JSON values, with the latest entries of the security log: its
    own, and failed log-ins with its name since it has this name. Another account may have had the name before. The
    password's hash and the secrets of second factors are not exported."""
    user = User.objects.get(pk=account_id)
    failed = Q(account=None, name=user.username, at__gte=_named_since(user))
    events = SecurityEvent.objects.filter(Q(account=user) | failed).order_by("-pk")
    return {
        "id": user.pk,
        "name": user.username,
        "email": user.email,
        "full_name": user.get_full_name(),
        "joined_at": clock.iso(user.date_joined),
        "last_log_in_at": user.last_login and clock.iso(user.last_login),
        "email_addresses": list(
            EmailAddress.objects.filter(user=user).order_by("pk").values("email", "verified", "primary")
        ),
        "second_factors": [
            {
                "kind": factor.get_type_display(),
                "name": str(factor.data.get("name", "")),
                "added_at": clock.iso(factor.created_at),
                "last_used_at": factor.last_used_at and clock.iso(factor.last_used_at),
            }
            for factor in Authenticator.objects.filter(user=user).order_by("pk")
        ],
        "sessions": [
            {
                "begun_at": clock.iso(session.begun_at),
                "last_seen_at": clock.iso(session.last_seen_at),
                "network": session.address,
                "browser": session.user_agent,
            }
            for session in AccountSession.objects.filter(account=user).order_by("pk")
        ],
        "security_log": [
            {
                "at": clock.iso(event.at),
                "kind": event.kind,
                "name": event.name,
                "network": event.address,
                "browser": event.user_agent,
                "detail": event.detail,
            }
            for event in events[:_EXPORTED_EVENTS_MAX]
        ],
    }


def _named_since(user: User) -> datetime:
    """Return since when the account has its name: it changes with the account's email address."""
    changes = SecurityEvent.objects.filter(account=user, kind=SecurityEvent.Kind.EMAIL_CHANGED)
    changed_at: datetime | None = changes.aggregate(last=Max("at"))["last"]
    return changed_at or user.date_joined


def is_staff(account_id: int) -> bool:
    return User.objects.filter(pk=account_id, is_staff=True).exists()


def erase_account(account_id: int, then: Callable[[], object] = lambda: None) -> None:
    """Replace the personal data of the account, delete its addresses and second factors, close it, call `then` in the
    same transaction, and commit. All its sessions and tokens end. An erased account stays as it is, without `then`.

    A request of the account that is under way may still write what it read before: the trigger of the account's row
    refuses that, and `delete_leftovers` deletes addresses and second factors.
    """
    with transactions.write():
        user = User.objects.select_for_update(no_key=True).get(pk=account_id)
        if user.erased_at is not None:
            return
        _erase_log(user)
        user.username, user.email, user.first_name, user.last_name = f"{ERASED}-{user.pk}", "", "", ""
        user.is_active, user.last_login, user.erased_at = False, None, clock.now()
        user.set_unusable_password()
        user.save()
        _delete_addresses_and_factors(Q(user=user))
        AccountSession.objects.filter(account=user).delete()
        SecurityEvent.objects.create(kind=SecurityEvent.Kind.ACCOUNT_ERASED, account=user, name=user.username)
        then()


def delete_leftovers() -> int:
    """Delete the addresses, second factors and sessions that a request added to an account while it was erased; return
    how many."""
    sessions, _ = AccountSession.objects.filter(account__erased_at__isnull=False).delete()
    return sessions + _delete_addresses_and_factors(Q(user__erased_at__isnull=False))


def _delete_addresses_and_factors(chosen: Q) -> int:
    return EmailAddress.objects.filter(chosen).delete()[0] + Authenticator.objects.filter(chosen).delete()[0]


def _erase_log(user: User) -> None:
    """Remove the account's names, networks and browsers from its entries of the security log, and the names from the
    entries of staff. What the account did as a member of staff stays.

    Anyone can store the address of another person without confirming it. Such a name is removed only from log-ins that
    failed, and not from these if another account has it, too.
    """
    confirmed = set(confirmed_addresses(user.pk))
    given = {user.username, user.email, *EmailAddress.objects.filter(user=user).values_list("email", flat=True)} - {""}
    names = confirmed | {name for name in given if accounts_of_address(name) == [user.pk]}
    own = SecurityEvent.objects.filter(Q(account=user) | Q(account=None, name__in=names))
    own.exclude(kind__in=_OF_STAFF).update(detail="")
    own.update(name=ERASED, address="", user_agent="")
    _erase_names({name for name in names if name in confirmed or "@" not in name})
    changes = LogEntry.objects.filter(content_type__app_label="accounts", content_type__model="user")
    changes.filter(object_id=str(user.pk)).update(object_repr=ERASED)


def _erase_names(names: Iterable[str]) -> None:
    """Remove these names from what the security log says about actions of staff."""
    # In the address of a page that staff opened, a name is quoted.
    spellings = {*names, *(quote(name, safe="") for name in names)}
    if not spellings:
        return
    whole_name = re.compile("|".join(rf"(?<![\w.+-]){re.escape(name)}(?![\w-])" for name in spellings), re.IGNORECASE)
    named = SecurityEvent.objects.filter(reduce(or_, (Q(detail__icontains=name) for name in spellings)))
    for event in named.filter(kind__in=_OF_STAFF).order_by("pk"):
        event.detail = whole_name.sub(ERASED, event.detail)
        event.save(update_fields=["detail"])
