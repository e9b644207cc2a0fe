#!/usr/bin/env python
"""Runs a management command. Without DATABASE_URL it uses the servers of the running demo."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
    if sys.argv[1:2] == ["migrate"] and os.environ.get("DATABASE_DIRECT_URL"):
        # Behind a pooler in transaction mode, a migration's session settings would apply to other clients.
        os.environ["DATABASE_URL"] = os.environ["DATABASE_DIRECT_URL"]
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db import InterfaceError, OperationalError
    except ModuleNotFoundError:
        sys.exit("Django is not installed for this Python: run `make venv`, then .venv/bin/python manage.py …")

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        _end(error, str(error))
    except (OperationalError, InterfaceError) as error:
        _end(error, _without_database(str(error)))


def _end(error: Exception, sentence: str) -> None:
    """Exit with status 1 and one line about an error that the operator can fix; `--traceback` raises it instead."""
    if "--traceback" in sys.argv:
        raise error
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.exit(f"manage.py {command}: {sentence}".replace("\n", " "))


def _without_database(message: str) -> str:
    from django.conf import settings

    first = message.strip().partition("\n")[0]
    if settings.DATABASE_IS_GIVEN:
        return f"the database failed: {first}"
    return "no demo of this checkout runs, and DATABASE_URL names no other database"


if __name__ == "__main__":
    main()
