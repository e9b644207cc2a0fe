"""Searches older than six months: those of accounts are archived, and deleted some time later; those of browsers are
deleted, since no person could still see them or ask for them.

The first is a scheduled task of code, which runs every hour; the others are called by the hourly pass of Celery's
schedule that erases personal data. Each call is bounded, and can be interrupted and repeated at any time.
"""

from datetime import datetime

from django.db.models import Q

from apps.events.models import ArchivedSearch, RecentSearch, SearchHistory
from apps.events.recents import history as histories
from apps.kernel.db import transactions

LISTED_DAYS = 183
"""How long a search stays in the list."""
ARCHIVED_DAYS = 730
"""How long after the search an archived one is deleted."""
PASS_MAX = 20_000
"""Rows of one call; the next one continues."""
BATCH_MAX = 2_000
"""Searches of one run of the task, in one transaction."""


def end_old_searches(before: datetime, limit: int = BATCH_MAX) -> int:
    """Remove up to `limit` searches from before this time from the lists: archive those of accounts, delete those of
    browsers. Return how many. Joins the caller's transaction."""
    transactions.require_transaction()
    due = RecentSearch.objects.filter(searched_at__lt=before).order_by("searched_at")
    ids = list(dict.fromkeys(due.values_list("history", flat=True)[:limit]))
    # A history that is changing now is skipped; a later run finds it again.
    locked = SearchHistory.objects.select_for_update(no_key=True, skip_locked=True).filter(pk__in=ids).order_by("pk")
    count = 0
    for history in locked:
        # Under the lock: the search may just have been repeated.
        old = list(RecentSearch.objects.filter(history=history, searched_at__lt=before))
        if history.account_id is not None:
            ArchivedSearch.objects.bulk_create(
                ArchivedSearch(history=history, text=one.text, searched_at=one.searched_at) for one in old
            )
        RecentSearch.objects.filter(pk__in=[one.pk for one in old]).delete()
        if old:
            histories.save_change(history)
        count += len(old)
    return count


def delete_archived_searches(before: datetime) -> int:
    """Delete archived searches from before this time; return how many."""
    due = ArchivedSearch.objects.filter(searched_at__lt=before).order_by("searched_at").values("pk")[:PASS_MAX]
    return ArchivedSearch.objects.filter(pk__in=due).delete()[0]


def delete_unused_histories(before: datetime) -> int:
    """Delete the histories of browsers that have not changed since this time, whose cookies have ended, and those of
    erased accounts, to which a request under way may have added one. Return how many."""
    is_due = Q(account__erased_at__isnull=False) | Q(account=None, changed_at__lt=before)
    due = list(SearchHistory.objects.filter(is_due).order_by("pk").values_list("pk", flat=True)[:PASS_MAX])
    return sum(_delete(history_id, before) for history_id in due)


def _delete(history_id: int, before: datetime) -> int:
    """Delete the history unless it has changed since; return 1 if it is deleted. One transaction."""
    with transactions.write():
        locked = SearchHistory.objects.select_for_update(no_key=True, of=("self",), skip_locked=True)
        history = locked.filter(pk=history_id).select_related("account").first()
        if history is None:
            return 0
        is_erased = history.account is not None and history.account.erased_at is not None
        if not is_erased and history.changed_at >= before:
            return 0
        histories.publish_deletion(history)
        history.delete()
    return 1
