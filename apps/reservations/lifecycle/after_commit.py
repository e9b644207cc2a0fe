"""What follows a commit: faster copies are told of what was held and what is free again. They may miss it; whatever
they keep is made again from the ledger. So nothing here can undo or fail what was committed."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeVar
from uuid import UUID

from apps.kernel import redis

logger = logging.getLogger(__name__)

Change = TypeVar("Change")


class Hold(NamedTuple):
    """A reservation that was just committed."""

    event_id: int
    reservation_id: UUID
    entry_id: UUID
    deadline: datetime
    taken: dict[int, int]
    """Section id to places, seats and general admission alike."""


@dataclass(frozen=True, slots=True)
class DeadlineChange:
    """A live reservation's deadline in force that has changed."""

    event_id: int
    reservation_id: UUID
    deadline: datetime


@dataclass(frozen=True, slots=True)
class Ended:
    """A reservation that has just ended, and what that gave back by section."""

    event_id: int
    reservation_id: UUID
    returned: dict[int, int]
    lapsed: bool = False
    """Because its deadline had passed, and not because somebody gave it back."""


@dataclass(frozen=True, slots=True)
class StockChange:
    """What staff put on sale in sections, or below zero took off it."""

    event_id: int
    free: dict[int, int]


Listener = Callable[[Sequence[Change]], redis.CommandBatch | None]
"""Is told in the thread that committed; what it has to send to Redis travels with what others have."""

_on_held: list[Listener[Hold]] = []
_on_deadline: list[Listener[DeadlineChange]] = []
_on_ended: list[Listener[Ended]] = []
_on_stock_changed: list[Listener[StockChange]] = []


def on_held(listener: Listener[Hold]) -> None:
    """From now on `listener` is called after every commit of holds."""
    _on_held.append(listener)


def on_deadline(listener: Listener[DeadlineChange]) -> None:
    """The same for deadlines that have changed."""
    _on_deadline.append(listener)


def on_ended(listener: Listener[Ended]) -> None:
    """The same for reservations that have ended, also those that another one replaced."""
    _on_ended.append(listener)


def on_stock_changed(listener: Listener[StockChange]) -> None:
    """The same for what staff put on sale or took off it."""
    _on_stock_changed.append(listener)


def notify_held(holds: Sequence[Hold]) -> None:
    """Every listener was told, if there is anything to tell."""
    _notify(_on_held, holds)


def notify_deadline_changed(deadlines: Sequence[DeadlineChange]) -> None:
    _notify(_on_deadline, deadlines)


def notify_ended(endings: Sequence[Ended]) -> None:
    _notify(_on_ended, endings)


def notify_stock_changed(changes: Sequence[StockChange]) -> None:
    _notify(_on_stock_changed, changes)


def _notify(listeners: Sequence[Listener[Change]], news: Sequence[Change]) -> None:
    if not news:
        return
    errands = []
    for listener in listeners:
        try:
            errands.append(listener(news))
        except Exception:  # The commit stands whatever a copy of it meets.
            logger.exception("%s was told of a commit and failed", getattr(listener, "__qualname__", listener))
    try:
        redis.run_command_batches([errand for errand in errands if errand is not None])
    except Exception:
        logger.exception("Redis was told of a commit and something failed")
