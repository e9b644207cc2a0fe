"""Rules for the settings of a deployment: with an https address a process serves real buyers."""

from collections.abc import Collection
from urllib.parse import urlsplit

SECRET_KEY_BYTES_MIN = 32
SANDBOX = "sandbox"


def find_violations(
    *,
    site_url: str,
    payment_provider: str,
    allow_sandbox: bool,
    email_url: str,
    secret_key: str,
    secret_key_fallbacks: Collection[str],
    debug: bool,
) -> list[str]:
    """Return one line for each setting that is unsafe for real buyers, each with what to set; none if `site_url` is not
    https. `payment_provider` is empty if the environment names none. No line contains a setting's value."""
    if urlsplit(site_url).scheme != "https":
        return []
    found = []
    if not payment_provider and not allow_sandbox:
        found.append(
            "Set PAYMENT_PROVIDER: with an https SITE_URL it has no default (stripe; on a staging system, sandbox with"
            " ALLOW_SANDBOX=1)"
        )
    if payment_provider == SANDBOX and not allow_sandbox:
        found.append(
            "Set PAYMENT_PROVIDER=stripe: the sandbox gives real tickets for test cards (on a staging system, set"
            " ALLOW_SANDBOX=1)"
        )
    if not email_url:
        found.append(
            "Set EMAIL_URL (smtp+tls://user:password@host:587): buyers get their tickets by mail, and without it mail"
            " is only printed"
        )
    if secret_key and _is_short(secret_key):
        found.append(
            f"Set SECRET_KEY to a random text of at least {SECRET_KEY_BYTES_MIN} bytes: a shorter one can be guessed"
        )
    if any(map(_is_short, secret_key_fallbacks)):
        found.append(
            f"Set SECRET_KEY_FALLBACKS to keys of at least {SECRET_KEY_BYTES_MIN} bytes, or to none: what they signed"
            " is accepted, and a shorter one can be guessed"
        )
    if debug:
        found.append("Set DEBUG=0: with it, error pages show code, settings and values to every visitor")
    return found


def _is_short(key: str) -> bool:
    return len(key.encode()) < SECRET_KEY_BYTES_MIN
