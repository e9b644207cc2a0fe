"""One-time codes: of the authenticator app (TOTP), and recovery codes.

allauth records used codes in Django's cache, and refuses every code while the cache is away. Here the row of the
authenticator has the time step of its last code, so that no code is accepted twice, with or without Redis.
"""

import hmac

from allauth.core.internal.cryptokit import normalize_user_code
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from allauth.mfa.utils import decrypt, is_mfa_enabled
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest

from apps.accounts import security_log
from apps.accounts.models import User
from apps.accounts.passwords import attempts

LENGTH_MAX = 32
_Type = Authenticator.Type


def has_second_factor(user: User) -> bool:
    """Return whether the account has an authenticator app or a passkey."""
    return is_mfa_enabled(user, [_Type.TOTP, _Type.WEBAUTHN])


def lacks_required_factor(user: User) -> bool:
    """Return whether the account may not act as staff because it has no second factor."""
    return settings.STAFF_MFA_REQUIRED and not has_second_factor(user)


def verify_code(request: HttpRequest, user: User, code: str) -> Authenticator | None:
    """Return the account's authenticator that accepts this code, which is used up then; else None. Raises
    RateLimited: wrong codes count as wrong passwords do."""
    attempts.require_attempts_left(request, user.username)
    digits = "".join(code.split())
    with transaction.atomic():
        rows = Authenticator.objects.select_for_update(no_key=True).filter(user=user)
        found = next((row for row in rows.exclude(type=_Type.WEBAUTHN).order_by("pk") if _accepts(row, digits)), None)
    if found is None:
        attempts.record_failure(request, user.username)
        security_log.record(request, security_log.Kind.CODE_WRONG, user)
    return found


def _accepts(authenticator: Authenticator, digits: str) -> bool:
    if authenticator.type == _Type.RECOVERY_CODES:
        return bool(authenticator.wrap().validate_code(digits))
    step = matching_step(decrypt(authenticator.data["secret"]), digits, authenticator.data.get("last_step", 0))
    if step is not None:
        authenticator.data["last_step"] = step
        authenticator.save(update_fields=["data"])
    return step is not None


def matching_step(secret: str, code: str, last_step: int = 0) -> int | None:
    """Return the present time step after `last_step` of which this is the code; None if it is of no such step."""
    digits = normalize_user_code(code)
    for step in totp.yield_hotp_counters_from_time():
        expected = totp.format_hotp_value(totp.hotp_value(secret, step))
        if step > last_step and hmac.compare_digest(expected.encode(), digits.encode()):
            return step
    return None
