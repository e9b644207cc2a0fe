"""Lists of charges, run step by step in the test's thread, and calls whose answers arrive when the test says so."""

from collections.abc import Collection, Sequence
from concurrent.futures import Future

import pytest

from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.facade import Message
from apps.orders import topics
from apps.orders.models import Order
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import ChargeRequest, ProviderEvent
from apps.orders.provider_sync import charge_lists
from tests.support.orders.sale import payment_of


class ListRun:
    """Claims and starts charges in lists in this thread, and collects their answers. It ends messages as a delivery
    does, and lets errors of the database pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[charge_lists._Answer] = []
        self.handled: list[int] = []
        self.alone: list[int] = []
        self.postponed: dict[int, float] = {}
        monkeypatch.setattr(charge_lists, "_arrivals", self)

    def start(self) -> list[Message]:
        messages = claim_charges()
        if messages:
            outbox.start_list(messages, self)
        return messages

    def settle(self) -> None:
        """Settle the answers that have arrived."""
        answers, self.answers = self.answers, []
        charge_lists.settle_arrived(answers)

    def extend(self, answers: Collection[charge_lists._Answer]) -> None:
        self.answers.extend(answers)

    def end(self, handled: Sequence[Message], alone: Sequence[Message] = ()) -> None:
        self.handled += [message.id for message in handled]
        self.alone += [message.id for message in alone]
        if handled or alone:
            outbox.end_started(handled, alone)

    def postpone(self, message: Message, seconds: float, why: str) -> None:
        self.postponed[message.id] = seconds
        outbox.postpone_started(message, seconds, why)


def claim_charges() -> list[Message]:
    """Claim the due charges that are handled in lists, as a delivery does."""
    return outbox.claim(0, busy_lists=outbox._topics.keys() - {topics.CHARGE})


class HeldCalls:
    """The sandbox's charges, of which some are answered only when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *held: Order) -> None:
        self._held = {payment_of(order).pk for order in held}
        self._waiting: dict[object, tuple[ChargeRequest, Future[ProviderEvent]]] = {}
        self.begun: list[object] = []
        """The ids of the payments, in the order in which their calls began."""
        self._begin = sandbox.Sandbox.begin_charges
        monkeypatch.setattr(sandbox.Sandbox, "begin_charges", self._begin_charges)

    def _begin_charges(self, requests: Sequence[ChargeRequest]) -> list["Future[ProviderEvent]"]:
        return [self._begin_charge(request) for request in requests]

    def _begin_charge(self, request: ChargeRequest) -> "Future[ProviderEvent]":
        self.begun.append(request.key)
        if request.key not in self._held:
            return self._begin(sandbox.Sandbox(), [request])[0]
        future: Future[ProviderEvent] = Future()
        self._waiting[request.key] = (request, future)
        return future

    def answer(self, order: Order) -> None:
        """Charge the order, and let the answer arrive."""
        request, future = self._waiting.pop(payment_of(order).pk)
        future.set_result(sandbox.Sandbox().charge(request))

    def fail(self, order: Order, error: BaseException) -> None:
        """Let the call end with this error. The charge does not exist."""
        self._waiting.pop(payment_of(order).pk)[1].set_exception(error)
