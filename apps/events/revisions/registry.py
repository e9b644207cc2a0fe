"""What the apps above add to a change of a published event."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from apps.events.revisions.proposal import Proposal


class ChangePart(Protocol):
    """An app's part in a change."""

    def describe(self, proposal: Proposal) -> Iterable[str]:
        """Return sentences on what the change means for those who hold, bought or wait. Only reads."""
        ...

    def apply(self, proposal: Proposal, change_id: int) -> None:
        """Make this app's part of the change. Joins the transaction that has written the new values and holds the lock
        of the event's row. Raises a Problem to refuse the whole change."""
        ...


_parts: list[ChangePart] = []


def provide_change_part(part: ChangePart) -> None:
    """Register an app's part in changes of published events."""
    if type(part) not in {type(known) for known in _parts}:
        _parts.append(part)


def change_parts() -> Sequence[ChangePart]:
    return tuple(_parts)
