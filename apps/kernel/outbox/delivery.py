"""Many deliveries at once in one process: one thread claims for as many as are free, each message has a thread.

What is stuck (a provider that takes its whole time-out) keeps one thread and delays nobody else's message, up to as
many as the crew has. Threads begin when there is work and end when there has been none for a while.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable

from django.conf import settings
from django.db import close_old_connections, connections

from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.kernel.outbox import facade
from apps.kernel.outbox.facade import Message

logger = logging.getLogger(__name__)

IDLE_SECONDS = 5.0
"""A thread that has had nothing to do for so long ends, and with it its connection."""


class Delivery:
    """The deliverers of one process. Messages start in the order in which they are claimed: the order they were due."""

    def __init__(self, size: int, messages_max: int | None = None) -> None:
        """`messages_max`: it claims so many in all, and then no more."""
        self._size = size
        self._left = messages_max
        self._changed = threading.Condition()
        self._is_wake_pending = False
        self._is_closed = False
        self._is_claimer_running = False
        """Somebody claims, or waits for a reason to."""
        self._is_claiming = False
        self._claimed: deque[Message] = deque()
        self._under_way: Counter[str] = Counter()
        """Claimed and not settled yet, of each topic."""
        self._threads = 0
        self._idle = 0
        self._handed_over = 0
        self._failure: Exception | None = None
        self._repeated_errors = RepeatedErrors(logger)

    def wake(self) -> None:
        """What is due is delivered from now on. Returns at once."""
        with self._changed:
            if self._is_closed:
                return
            self._is_wake_pending = True
            if not self._is_claimer_running:
                self._is_claimer_running = True
                self._start("outbox-claims", self._claim_loop)
            self._changed.notify_all()

    @property
    def handed_over_count(self) -> int:
        """Messages whose handler has come to its end."""
        return self._handed_over

    @property
    def under_way_count(self) -> int:
        return self._busy_count()

    @property
    def failure(self) -> Exception | None:
        """Why the latest look for messages found none, if it failed."""
        return self._failure

    def wait(self, seconds: float | None) -> bool:
        """Returns as soon as nothing is due that could be claimed and nothing is under way, or after `seconds`; whether
        it was so."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, seconds)

    def _is_idle(self) -> bool:
        is_to_look = self._is_wake_pending and self._is_claimer_running and self._left != 0
        return not (is_to_look or self._is_claiming or self._busy_count())

    def close(self, seconds: float) -> bool:
        """Nothing more is claimed, and what is under way has had `seconds` to end; whether it did. The claims of what
        did not run out, and another worker takes them."""
        with self._changed:
            self._is_closed, self._is_wake_pending = True, False
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._is_claimer_running and self._threads == 0, seconds)

    def _claim_loop(self) -> None:
        try:
            while (free := self._wait_for_capacity()) > 0:
                self._claim(free)
        finally:
            connections.close_all()
            with self._changed:
                self._is_claimer_running = False
                # Who asked between our last look and here saw us and started nobody.
                if self._is_wake_pending and self._left != 0 and not self._is_closed:
                    self._is_claimer_running = True
                    self._start("outbox-claims", self._claim_loop)
                self._changed.notify_all()

    def _wait_for_capacity(self) -> int:
        """How many may be claimed, once there is a reason to look; 0 when this thread may end."""
        with self._changed:
            while not self._is_closed:
                if self._is_wake_pending and self._free_count() > 0:
                    self._is_wake_pending, self._is_claiming = False, True
                    return self._free_count()
                came = self._changed.wait_for(
                    lambda: self._is_closed or (self._is_wake_pending and self._free_count() > 0), IDLE_SECONDS
                )
                if not came and self._busy_count() == 0:
                    return 0
            return 0

    def _claim(self, free: int) -> None:
        messages: list[Message] = []
        failure: Exception | None = None
        with self._changed:
            under_way = Counter(self._under_way)
        try:
            close_old_connections()
            messages = facade.claim(free, under_way)
            self._repeated_errors.over("messages were not claimed")
        except Exception as error:  # noqa: BLE001 - The scanner wakes us again; until then the others go on.
            self._repeated_errors.record_failure("messages were not claimed", error)
            failure = error
        with self._changed:
            self._is_claiming, self._failure = False, failure
            if self._left is not None:
                self._left -= len(messages)
            # Whoever found any looks for more.
            self._is_wake_pending |= bool(messages)
            for message in messages:
                self._under_way[message.topic] += 1
                self._claimed.append(message)
                if len(self._claimed) > self._idle:
                    self._threads += 1
                    self._start("outbox-delivers", self._work)
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while (message := self._next()) is not None:
                try:
                    close_old_connections()
                    facade.hand_over(message)
                except Exception:
                    logger.exception("message %s (%s) could not be settled", message.id, message.topic)
                finally:
                    with self._changed:
                        self._under_way[message.topic] -= 1
                        self._handed_over += 1
                        # A settled message lets the next of its key go, and this thread is free.
                        self._is_wake_pending = not self._is_closed
                        self._changed.notify_all()
        finally:
            connections.close_all()
            with self._changed:
                self._threads -= 1
                self._changed.notify_all()

    def _next(self) -> Message | None:
        with self._changed:
            self._idle += 1
            try:
                self._changed.wait_for(lambda: self._claimed or self._is_closed, IDLE_SECONDS)
                return self._claimed.popleft() if self._claimed else None
            finally:
                self._idle -= 1

    def _busy_count(self) -> int:
        return self._under_way.total()

    def _free_count(self) -> int:
        """How many more may be claimed."""
        free = self._size - self._busy_count()
        return free if self._left is None else min(free, self._left)

    def _start(self, name: str, act: Callable[[], None]) -> None:
        threading.Thread(target=act, name=name, daemon=True).start()


_of_process: list[Delivery] = []
_creation_lock = threading.Lock()


def get_delivery() -> Delivery:
    """This process's deliverers, OUTBOX_DELIVERERS of them at most."""
    with _creation_lock:
        if not _of_process:
            _of_process.append(Delivery(settings.OUTBOX_DELIVERERS))
        return _of_process[0]


def close(seconds: float) -> bool:
    """This process delivers no more, and what was under way has had `seconds` to end; whether it did."""
    with _creation_lock:
        crew = _of_process.pop() if _of_process else None
    return crew is None or crew.close(seconds)
