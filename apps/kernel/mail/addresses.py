"""Which email addresses buyers and accounts may have."""

from django import forms
from django.core.validators import EmailValidator

_INTERNAL_DOMAINS = frozenset(
    ("corp", "home", "internal", "intranet", "invalid", "lan", "local", "localdomain", "localhost", "private")
)
"""Last labels of names of local networks, none of which exists on the internet; `home.arpa` is another such name. The
addresses of erased orders end in `invalid`."""


class _AddressValidator(EmailValidator):
    """Django's check, but the domain must be a name with a dot that is not one of a local network. Django also accepts
    `localhost` and addresses of hosts (`a@[127.0.0.1]`), with which anyone could let the mail server send to its own
    network.

    A domain must not get longer in small letters, as U+0130 does: addresses are stored in small letters, and their
    length is checked before."""

    domain_allowlist: list[str] = []

    def validate_domain_part(self, domain_part: str) -> bool:
        name = domain_part.lower()
        is_internal = name.rpartition(".")[2] in _INTERNAL_DOMAINS or f".{name}".endswith(".home.arpa")
        is_as_long = len(name) == len(domain_part)
        return not is_internal and is_as_long and self.domain_regex.match(domain_part) is not None


check_address = _AddressValidator()
"""Raises ValidationError unless the text is such an address."""


class AddressField(forms.EmailField):
    """A form's field for such an address."""

    default_validators = [check_address]
