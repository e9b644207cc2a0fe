"""The searches of accounts as personal data: their export and erasure. Those of browsers cannot be found by a person:
they have no address."""

from collections.abc import Collection
from typing import Any

from apps.events.models import ArchivedSearch, RecentSearch, SearchHistory
from apps.events.recents import history as histories
from apps.kernel import clock
from apps.kernel.db import transactions


def export_searches(account_ids: Collection[int]) -> dict[str, Any]:
    """Return the saved and archived searches of these accounts as JSON values, newest first, and whether the accounts
    have searches saved."""
    chosen = SearchHistory.objects.filter(account__in=account_ids)
    rows: list[tuple[str, Any]] = []
    for model in (RecentSearch, ArchivedSearch):
        rows += model.objects.filter(history__in=chosen).order_by("-searched_at").values_list("text", "searched_at")
    return {
        "are_saved": not chosen.filter(is_on=False).exists(),
        "searches": [{"text": text, "searched_at": clock.iso(searched_at)} for text, searched_at in rows],
    }


def erase_searches(account_ids: Collection[int]) -> int:
    """Delete the searches of these accounts, archived ones too, and the choice not to save any; return how many
    histories. One transaction for each."""
    count = 0
    for history_id in SearchHistory.objects.filter(account__in=account_ids).order_by("pk").values_list("pk", flat=True):
        with transactions.write():
            history = SearchHistory.objects.select_for_update(no_key=True).filter(pk=history_id).first()
            if history is not None:
                histories.publish_deletion(history)
                history.delete()
                count += 1
    return count
