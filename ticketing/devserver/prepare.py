"""The steps between starting the servers and the site, in one process: `python -m ticketing.devserver.prepare`.

Uses the same environment as the site; every step may be repeated.
"""

import io
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

ADMIN = "admin"


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print the step, and its duration once it is done."""
    print(f"  {text} …", end="", flush=True)
    begun = time.monotonic()
    yield
    print(f" {time.monotonic() - begun:.1f} s", flush=True)


def prepare() -> None:
    """Migrate, load the demo events, and set the admin's password to ADMIN_PASSWORD."""
    import django

    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    with step("Migrating"):
        call_command("migrate", interactive=False, verbosity=0)
    with step("Loading the demo events"):
        output = io.StringIO()
        call_command("load_demo", season=True, verbosity=0, stdout=output)
    for line in output.getvalue().splitlines():
        print(f"  {line}", flush=True)
    password = os.environ.get("ADMIN_PASSWORD")
    if not password:
        return
    users = get_user_model()
    admin, _ = users.objects.get_or_create(username=ADMIN, defaults={"email": "admin@localhost"})
    if not (admin.is_superuser and admin.is_staff and admin.check_password(password)):
        admin.is_superuser = admin.is_staff = True
        admin.set_password(password)
        admin.save()


def main() -> int:
    from django.core.management.base import CommandError
    from django.db.migrations.exceptions import InconsistentMigrationHistory
    from django.db.utils import DatabaseError, OperationalError

    try:
        prepare()
    except InconsistentMigrationHistory:
        print("\nmake demo: the demo's data is of an earlier version. Remove it: make reset", file=sys.stderr)
        return 1
    except (CommandError, DatabaseError, OSError) as error:
        cause = "the database does not respond: " if isinstance(error, OperationalError) else ""
        first_line = (str(error).strip() or type(error).__name__).partition("\n")[0]
        print(f"\nmake demo: {cause}{first_line}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
    sys.exit(main())
