"""Delivers messages concurrently in one process: one thread claims messages, and other threads handle one message or
one list of messages each.

If the database fails while a message is handled, the handler's end cannot be recorded, and the claim would hide the
message for the rest of its visibility timeout: 45 s for a charge. So the process keeps such claims and ends them once
the database is back. A claim of a process that is killed still expires by itself.

A stuck handler (a provider that uses its whole timeout) occupies one thread and delays no other message until all
threads are occupied. Lists have threads of their own, one for each topic with lists. If the list of a topic only starts
the work (`facade.ListStarter`), its thread is free again at once, and each message ends by itself. Threads start when
there is work and end after IDLE_SECONDS without any.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from functools import partial

from django.conf import settings
from django.db import InterfaceError, close_old_connections, connections

from apps.kernel.db import pools, roundtrip, transactions
from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.kernel.outbox import facade
from apps.kernel.outbox.facade import ClaimNotEnded, Message
from apps.kernel.outbox.topic_groups import ALL_GROUPS, TopicGroup

logger = logging.getLogger(__name__)

IDLE_SECONDS = 60.0
"""An idle thread ends after this time and closes its database connection. A new session of PostgreSQL costs as much as
some sales, so threads outlast the pauses between them."""

END_AGAIN_SECONDS = 1.0
"""The interval at which claims are ended again that the database could not end."""


class Delivery:
    """The delivery threads of one process. Messages are handled in the order of their claims, which is that of their
    due times."""

    def __init__(
        self, size: int, messages_max: int | None = None, *, groups: Collection[TopicGroup] = ALL_GROUPS
    ) -> None:
        """`size`: the most messages that are handled alone at once. `messages_max`: the most messages to claim in all,
        none of them in lists; None: no limit. `groups`: only their messages are claimed."""
        self._size = size
        self._groups = groups
        self._left = messages_max
        self._has_lists = messages_max is None
        self._changed = threading.Condition()
        self._is_wake_pending = False
        self._is_closed = False
        self._is_claimer_running = False
        """A thread is claiming or waiting to claim."""
        self._is_claiming = False
        self._claimed: deque[list[Message]] = deque()
        """Messages to be handled alone, and lists of messages to be handled together."""
        self._under_way: Counter[str] = Counter()
        """Claimed and not yet settled messages, by topic."""
        self._busy_lists: set[str] = set()
        """Topics with a list that is claimed and neither settled nor started."""
        self._started: set[int] = set()
        """Messages of started lists that have not ended, by id."""
        self._alone_count = 0
        """Claimed and not yet settled messages that are handled alone."""
        self._threads = 0
        self._idle = 0
        self._unended: list[ClaimNotEnded] = []
        """Claims of handlers that have ended while the database failed."""
        self._is_ender_running = False
        self.handed_over_count = 0
        """Messages whose handler has finished."""
        self.failure: Exception | None = None
        """The error of the latest claim, or None if it succeeded."""
        self._repeated_errors = RepeatedErrors(logger)

    def wake(self) -> None:
        """Start delivering due messages, and return at once."""
        with self._changed:
            if self._is_closed:
                return
            self._is_wake_pending = True
            if not self._is_claimer_running:
                self._is_claimer_running = True
                self._start("outbox-claims", self._claim_loop)
            self._changed.notify_all()

    def wake_if_free(self) -> bool:
        """Do as `wake`, unless every thread is occupied; return whether due messages are claimed here."""
        with self._changed:
            is_free = not self._is_closed and self._free_count() > 0
        if is_free:
            self.wake()
        return is_free

    @property
    def under_way_count(self) -> int:
        return self._under_way.total()

    def wait(self, seconds: float | None) -> bool:
        """Wait until no message can be claimed and none is in progress. Return False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, seconds)

    def _is_idle(self) -> bool:
        has_claim_ahead = self._is_wake_pending and self._is_claimer_running and self._left != 0
        return not (has_claim_ahead or self._is_claiming or self.under_way_count)

    def close(self, seconds: float) -> bool:
        """Stop claiming, wait up to `seconds` for messages in progress, and return whether all have ended. The claims
        of messages still in progress expire, and another worker takes them."""
        with self._changed:
            self._is_closed, self._is_wake_pending = True, False
            self._changed.notify_all()
            return self._changed.wait_for(self._has_ended, seconds)

    def _has_ended(self) -> bool:
        return not (self._is_claimer_running or self._threads or self.under_way_count)

    def end(self, handled: Sequence[Message], alone: Sequence[Message] = ()) -> None:
        """Settle messages of started lists and give others back: see `facade.Ends`."""
        with self._changed:
            handled = [message for message in handled if message.id in self._started]
            alone = [message for message in alone if message.id in self._started]
            self._started.difference_update(message.id for message in (*handled, *alone))
        if handled or alone:
            self._end_started([*handled, *alone], partial(facade.end_started, handled, alone))

    def postpone(self, message: Message, seconds: float, why: str) -> None:
        """Give a message of a started list back for later: see `facade.Ends`."""
        with self._changed:
            if message.id not in self._started:
                return
            self._started.discard(message.id)
        self._end_started([message], partial(facade.postpone_started, message, seconds, why))

    def _end_started(self, messages: Sequence[Message], end: Callable[[], None]) -> None:
        try:
            end()
        except ClaimNotEnded as claim:
            logger.warning("%s: %s", claim, claim.__cause__)
            self._end_later(claim)
        finally:
            with self._changed:
                self._under_way[messages[0].topic] -= len(messages)
                self.handed_over_count += len(messages)
                self._is_wake_pending = not self._is_closed
                self._changed.notify_all()

    def _claim_loop(self) -> None:
        try:
            while (free := self._wait_for_capacity()) is not None:
                self._claim(free)
        finally:
            connections.close_all()
            with self._changed:
                self._is_claimer_running = False
                # A `wake` between our last claim and here saw a running claimer and started no thread.
                if self._is_wake_pending and self._left != 0 and not self._is_closed:
                    self._is_claimer_running = True
                    self._start("outbox-claims", self._claim_loop)
                self._changed.notify_all()

    def _wait_for_capacity(self) -> int | None:
        """Wait until a claim may find messages for a free thread. Return how many to claim that are handled alone;
        None: this thread may end."""
        with self._changed:
            while True:
                has_reason = self._changed.wait_for(
                    lambda: self._is_closed or (self._is_wake_pending and self._may_claim()), IDLE_SECONDS
                )
                if self._is_closed or not (has_reason or self.under_way_count) or self._left == 0:
                    return None
                if has_reason:
                    self._is_wake_pending, self._is_claiming = False, True
                    return self._free_count()

    def _claim(self, free: int) -> None:
        messages: list[Message] = []
        failure: Exception | None = None
        with self._changed:
            under_way = Counter(self._under_way)
            busy_lists = set(self._busy_lists) if self._has_lists else None
        try:
            pools.renew_django_connections(prepares=True)
            messages = facade.claim(free, under_way, busy_lists=busy_lists, groups=self._groups)
            self._repeated_errors.over("messages were not claimed")
        except Exception as error:  # noqa: BLE001 - The scanner wakes us again; other deliveries continue.
            self._repeated_errors.record_failure("messages were not claimed", error)
            failure = error
            if transactions.is_statement_missing(error):
                roundtrip.disable_prepared()
            # After a migration, a prepared statement can fail until it is prepared again.
            connections.close_all()
        with self._changed:
            self._is_claiming, self.failure = False, failure
            if self._left is not None:
                self._left -= len(messages)
            # A claim may miss messages that are handled alone. A list is followed by a claim when it has ended.
            self._is_wake_pending |= any(not self._is_list([message]) for message in messages)
            for unit in self._units_of(messages):
                self._under_way[unit[0].topic] += len(unit)
                if self._is_list(unit):
                    self._busy_lists.add(unit[0].topic)
                else:
                    self._alone_count += 1
                self._claimed.append(unit)
                if len(self._claimed) > self._idle:
                    self._threads += 1
                    self._start("outbox-delivers", self._work)
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while (unit := self._next()) is not None:
                is_started = False
                try:
                    self._connect(unit)
                    if self._is_list(unit) and facade.is_started_in_lists(unit[0]):
                        is_started = True
                        self._start_list(unit)
                    elif self._is_list(unit):
                        facade.hand_over_list(unit)
                    else:
                        facade.hand_over(unit[0])
                except ClaimNotEnded as claim:
                    logger.warning("%s: %s", claim, claim.__cause__)
                    self._end_later(claim)
                except facade.EXITS:
                    raise
                except BaseException:
                    names = ", ".join(f"{message.id} ({message.topic})" for message in unit)
                    logger.exception("message %s could not be settled", names)
                finally:
                    with self._changed:
                        if self._is_list(unit):
                            self._busy_lists.discard(unit[0].topic)
                        else:
                            self._alone_count -= 1
                        if not is_started:
                            self._under_way[unit[0].topic] -= len(unit)
                            self.handed_over_count += len(unit)
                        # The next message of its key may be due now, and this thread is free.
                        self._is_wake_pending = not self._is_closed
                        self._changed.notify_all()
        finally:
            connections.close_all()
            with self._changed:
                self._threads -= 1
                self._changed.notify_all()

    def _connect(self, unit: list[Message]) -> None:
        """Renew this thread's connections. Raises ClaimNotEnded, whose end gives the messages back."""
        try:
            pools.renew_django_connections(prepares=self._is_list(unit))
            if self._is_list(unit):
                connections["default"].ensure_connection()
        except (*transactions.FAILURES, InterfaceError) as error:
            raise ClaimNotEnded(unit[0], partial(facade.give_back, unit)) from error

    def _start_list(self, messages: list[Message]) -> None:
        with self._changed:
            self._started.update(message.id for message in messages)
        facade.start_list(messages, self)

    def _end_later(self, claim: ClaimNotEnded) -> None:
        with self._changed:
            self._unended.append(claim)
            if not self._is_ender_running and not self._is_closed:
                self._is_ender_running = True
                self._start("outbox-ends", self._end_claims)

    def _end_claims(self) -> None:
        """End the kept claims, again and again until all have ended or this is closed."""
        try:
            while claims := self._claims_to_end():
                ended = [claim for claim in claims if self._end(claim)]
                with self._changed:
                    self._unended = [claim for claim in self._unended if claim not in ended]
                    if len(ended) < len(claims):
                        self._changed.wait_for(lambda: self._is_closed, END_AGAIN_SECONDS)
                if ended:
                    self.wake()
        finally:
            connections.close_all()

    def _claims_to_end(self) -> list[ClaimNotEnded]:
        with self._changed:
            claims = [] if self._is_closed else list(self._unended)
            self._is_ender_running = bool(claims)
            return claims

    def _end(self, claim: ClaimNotEnded) -> bool:
        try:
            close_old_connections()  # The one that failed is replaced.
            claim.end()
        except Exception as error:  # noqa: BLE001 - It is tried again; the claim expires in any case.
            self._repeated_errors.record_failure("claims were not ended", error)
            return False
        self._repeated_errors.over("claims were not ended")
        return True

    def _is_list(self, unit: list[Message]) -> bool:
        return self._has_lists and facade.is_listed(unit[0])

    def _units_of(self, messages: list[Message]) -> list[list[Message]]:
        """Return the messages in the units in which they are handled, by the due time of the units' first messages."""
        units: dict[int | str, list[Message]] = {}
        for message in messages:
            units.setdefault(message.topic if self._is_list([message]) else message.id, []).append(message)
        return list(units.values())

    def _next(self) -> list[Message] | None:
        with self._changed:
            self._idle += 1
            try:
                self._changed.wait_for(lambda: self._claimed or self._is_closed, IDLE_SECONDS)
                return self._claimed.popleft() if self._claimed else None
            finally:
                self._idle -= 1

    def _may_claim(self) -> bool:
        return self._free_count() > 0 or (self._has_lists and facade.has_free_list(self._busy_lists, self._groups))

    def _free_count(self) -> int:
        """Return how many more messages that are handled alone may be claimed."""
        free = self._size - self._alone_count
        return free if self._left is None else min(free, self._left)

    def _start(self, name: str, act: Callable[[], None]) -> None:
        threading.Thread(target=act, name=name, daemon=True).start()


_of_process: list[Delivery] = []
_creation_lock = threading.Lock()


def get_delivery() -> Delivery:
    """Return this process's Delivery for the groups of `worker`, with OUTBOX_DELIVERERS threads at most."""
    with _creation_lock:
        if not _of_process:
            _of_process.append(Delivery(settings.OUTBOX_DELIVERERS, groups=facade.worker_groups()))
        return _of_process[0]


def close(seconds: float) -> bool:
    """Close this process's Delivery, if there is one, and return whether all its messages ended within `seconds`."""
    with _creation_lock:
        delivery = _of_process.pop() if _of_process else None
    return delivery is None or delivery.close(seconds)
