"""Access codes for staff: links, limits and usage."""

from collections.abc import Iterable
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Count
from django.urls import reverse

from apps.kernel.db import transactions
from apps.reservations.models import AccessCode, Reservation


def lock_codes(code_ids: Iterable[int]) -> list[AccessCode]:
    """Lock these codes in id order and return them. Holds with these codes wait, so that uses can be counted. Joins
    the caller's transaction."""
    transactions.require_transaction()
    return list(AccessCode.objects.select_for_update(no_key=True).filter(pk__in=list(code_ids)).order_by("pk"))


def set_active(code_ids: Iterable[int], *, is_active: bool) -> None:
    """Activate or deactivate these codes, and commit."""
    with transactions.write():
        AccessCode.objects.filter(pk__in=[code.pk for code in lock_codes(code_ids)]).update(is_active=is_active)


def link_of(event_slug: str, code: str) -> str:
    """Return the link to the selection page with this code."""
    return f"{settings.SITE_URL}{reverse('reservations:choose', args=[event_slug])}?{urlencode({'access': code})}"


def used_count(code: AccessCode) -> int:
    """Return the number of live and confirmed reservations with this code, including overdue ones that are not yet
    expired. Exact under the code's lock."""
    return code.reservations.filter(status__in=Reservation.LIVE_OR_CONFIRMED).count()


def most_of_one_buyer(code: AccessCode) -> int:
    """Return the highest number of live and confirmed reservations with this code that one buyer has."""
    counted = (
        code.reservations.filter(status__in=Reservation.LIVE_OR_CONFIRMED).values("buyer").annotate(count=Count("pk"))
    )
    most: int | None = counted.order_by("-count").values_list("count", flat=True).first()
    return most or 0
