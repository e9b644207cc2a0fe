"""The confirmed email addresses of accounts."""

from allauth.account.models import EmailAddress
from django.db.models import F


def confirmed_address(account_id: int | None) -> str:
    """Return the email address of the active account if it has confirmed it; else empty."""
    if account_id is None:
        return ""
    own = EmailAddress.objects.filter(user=account_id, user__is_active=True, email=F("user__email"), verified=True)
    return own.values_list("email", flat=True).first() or ""
