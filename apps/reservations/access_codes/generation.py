"""Access codes as staff make and limit them."""

from collections.abc import Iterable
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Count
from django.urls import reverse

from apps.kernel.db import transactions
from apps.reservations.models import AccessCode, Reservation

LIVE_OR_CONFIRMED = (*Reservation.LIVE, Reservation.Status.CONFIRMED)


def lock_codes(code_ids: Iterable[int]) -> list[AccessCode]:
    """These codes, as they are under the lock that their uses are counted under, taken in id order: holds by them wait.
    Joins the caller's transaction."""
    transactions.require_transaction()
    return list(AccessCode.objects.select_for_update(no_key=True).filter(pk__in=list(code_ids)).order_by("pk"))


def set_active(code_ids: Iterable[int], *, is_active: bool) -> None:
    """These codes open what they are for, or it is as if there were none; committed."""
    with transactions.write():
        AccessCode.objects.filter(pk__in=[code.pk for code in lock_codes(code_ids)]).update(is_active=is_active)


def link_of(event_slug: str, code: str) -> str:
    """The address that brings the code along to where one chooses."""
    return f"{settings.SITE_URL}{reverse('reservations:choose', args=[event_slug])}?{urlencode({'access': code})}"


def used_count(code: AccessCode) -> int:
    """Reservations that stand by it, those included that have lapsed and nobody has ended; exact under its lock."""
    return code.reservations.filter(status__in=LIVE_OR_CONFIRMED).count()


def most_of_one_buyer(code: AccessCode) -> int:
    """How many of them the buyer has who has most."""
    counted = code.reservations.filter(status__in=LIVE_OR_CONFIRMED).values("buyer").annotate(count=Count("pk"))
    most: int | None = counted.order_by("-count").values_list("count", flat=True).first()
    return most or 0
