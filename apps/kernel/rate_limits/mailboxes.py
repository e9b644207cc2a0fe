"""The mailbox behind an email address, so that one person's spellings of an address count once.

The rule: upper and lower case are equal; quotation marks around the name are dropped; a tag (`+…` before the @) is
dropped; dots in the name are dropped at providers that ignore them; an international domain is spelled in ASCII.
Another address of the same person is another mailbox: no rule can know that.
"""

import re

from apps.kernel import secret_key

_IGNORE_DOTS = {"gmail.com": "gmail.com", "googlemail.com": "gmail.com"}
"""Providers that deliver to one mailbox wherever dots are in the name: domain to the domain that stands for it."""


def mailbox_of(address: str) -> str:
    """Return the canonical spelling of the address's mailbox."""
    name, _, domain = address.strip().lower().rpartition("@")
    if len(name) > 2 and name[0] == name[-1] == '"':
        name = re.sub(r"\\(.)", r"\1", name[1:-1])
    domain = _ascii_domain(domain)
    name = name.partition("+")[0] or name
    if domain in _IGNORE_DOTS:
        name, domain = name.replace(".", "") or name, _IGNORE_DOTS[domain]
    return f"{name}@{domain}"


def _ascii_domain(domain: str) -> str:
    try:
        return domain.encode("idna").decode("ascii")
    except UnicodeError:  # Also for a label that is empty or too long: an address that was never confirmed.
        return domain


def mailbox_digest(purpose: str, address: str, origin: str = "") -> bytes:
    """Return an HMAC of the mailbox, which can be stored and compared, and does not reveal the address. With an origin
    (`mail_caps.origin_of`), of the mailbox and this network."""
    mailbox = mailbox_of(address)
    return secret_key.keyed_digest(purpose, f"{origin} {mailbox}" if origin else mailbox)
