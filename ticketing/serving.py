"""What a process has before it serves anybody."""

import sys

from django.core.exceptions import ImproperlyConfigured

from ticketing.kernel import signing, vitals


def begin() -> None:
    """The house has a key of its own, without which the process ends here with one line and exit status 1; and what
    this process measures of its health is known to the others from now on."""
    try:
        signing.require_key()
    except ImproperlyConfigured as error:
        sys.exit(f"fairgate: {error}")
    vitals.begin()
