"""The version of the public pages in PostgreSQL.

Triggers on the tables that public pages show (`kernel_note_page_change`) insert one row in each transaction that
changes them. So a change is visible here exactly when it is visible to a render, whichever program makes it, and
writers do not wait for each other as they would for a common counter.
"""

from django.db import connection

from apps.kernel.db import sql

KEPT_SECONDS = 3_600

_version = sql.load("apps.kernel.page_cache", "version")
_delete_old_changes = sql.load("apps.kernel.page_cache", "delete_old_changes")


def read_version() -> str:
    """Return a value that differs after each commit that may have changed a public page. Blocks."""
    with connection.cursor() as cursor:
        ((version,),) = _version.rows(cursor)
    return str(version)


def delete_old_changes() -> int:
    """Delete the marks of changes older than an hour and return how many. The version then differs, too: pages that are
    kept are rendered once more."""
    with connection.cursor() as cursor:
        return _delete_old_changes.count(cursor, kept_seconds=KEPT_SECONDS)
