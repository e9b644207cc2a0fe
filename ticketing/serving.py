"""What a process has before it serves anybody."""

import sys

from django.core.exceptions import ImproperlyConfigured

from ticketing.kernel import signing


def begin() -> None:
    """The house has a key of its own; without one the process ends here with one line and exit status 1."""
    try:
        signing.require_key()
    except ImproperlyConfigured as error:
        sys.exit(f"fairgate: {error}")
