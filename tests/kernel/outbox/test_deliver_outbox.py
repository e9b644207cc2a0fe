"""The command that delivers the outbox: concurrently like a worker, until nothing is due, with a clean end."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError

from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.management.commands import deliver_outbox
from apps.kernel.outbox.models import OutboxMessage
from tests.kernel.outbox.test_delivery import SECONDS_MAX, Deliveries, left, publish
from tests.support.races import ConcurrentCall

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def deliveries(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deliveries]:
    monkeypatch.setattr(outbox, "_topics", {})
    monkeypatch.setattr(outbox, "_wake", [])
    handler = Deliveries()
    outbox.register_handler("test", handler.handle)
    yield handler
    handler.go_on.set()


def test_a_stuck_message_delays_no_other_and_the_command_ends_after_it(deliveries: Deliveries, capsys: Any) -> None:
    """A: its provider does not answer
    B … K: were published after it and are delivered meanwhile; then A ends, and with it the command
    """
    publish(("stuck", 0), *((f"key-{number}", number) for number in range(10)))
    command = ConcurrentCall(lambda: call_command("deliver_outbox"))
    deliveries.wait_for(10)
    assert ("stuck", 0) not in deliveries.ended
    assert command.is_running
    deliveries.go_on.set()
    command.result()
    assert capsys.readouterr().out == "outbox: 11 messages handed over\n"
    assert left() == []


def test_control_when_delivered_one_after_the_other_all_messages_wait(deliveries: Deliveries) -> None:
    publish(("stuck", 0), *((f"key-{number}", number) for number in range(10)))
    alone = ConcurrentCall(outbox.deliver)
    assert deliveries.is_stuck.wait(SECONDS_MAX)
    assert (deliveries.ended, len(left())) == ([], 11)
    deliveries.go_on.set()
    assert alone.result() == 11
    assert left() == []


def test_it_also_delivers_messages_published_by_its_handlers_and_leaves_those_not_due(
    deliveries: Deliveries, capsys: Any
) -> None:
    def publish_next(message: outbox.Message) -> None:
        if message.body["number"]:
            publish(("chain", message.body["number"] - 1))
        else:
            raise outbox.RetryLater(60)

    outbox.register_handler("test", publish_next)
    publish(("chain", 5))
    call_command("deliver_outbox")
    assert capsys.readouterr().out == "outbox: 6 messages handed over\n"
    assert left() == ["chain"]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_it_claims_no_more_than_its_limit(deliveries: Deliveries, capsys: Any, limit: int) -> None:
    publish(*((f"key-{number}", number) for number in range(5)))
    call_command("deliver_outbox", limit=limit)
    assert capsys.readouterr().out == f"outbox: {limit} messages handed over\n"
    assert len(left()) == 5 - limit
    assert not OutboxMessage.objects.filter(done_at=None).exclude(receipt=None).exists()


def test_an_empty_outbox_is_not_an_error(deliveries: Deliveries, capsys: Any) -> None:
    call_command("deliver_outbox")
    assert capsys.readouterr().out == "outbox: 0 messages handed over\n"


def interrupt_when_stuck(deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate Ctrl-C while a message is in progress."""

    def wait(delivery: Delivery, seconds: float | None) -> bool:
        assert deliveries.is_stuck.wait(SECONDS_MAX)
        raise KeyboardInterrupt

    monkeypatch.setattr(Delivery, "wait", wait)


def test_an_interrupted_command_finishes_messages_in_progress_and_leaves_the_rest(
    deliveries: Deliveries, capsys: Any, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.OUTBOX_DELIVERERS = 1
    interrupt_when_stuck(deliveries, monkeypatch)
    close = Delivery.close

    def close_and_let_end(delivery: Delivery, seconds: float) -> bool:
        assert not close(delivery, 0)
        deliveries.go_on.set()
        return close(delivery, SECONDS_MAX)

    monkeypatch.setattr(Delivery, "close", close_and_let_end)
    publish(("stuck", 1), ("late", 2))
    with pytest.raises(SystemExit) as ended:
        call_command("deliver_outbox")
    assert ended.value.code == deliver_outbox.INTERRUPTED
    assert capsys.readouterr().out == "outbox: 1 messages handed over\n"
    assert left() == ["late"]


def test_a_delivery_that_does_not_end_in_time_keeps_its_claim(
    deliveries: Deliveries, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_when_stuck(deliveries, monkeypatch)
    monkeypatch.setattr(deliver_outbox, "END_SECONDS_MAX", 0)
    delivery = Delivery(2)
    monkeypatch.setattr(deliver_outbox, "Delivery", lambda *_, **__: delivery)
    publish(("stuck", 1))
    with pytest.raises(SystemExit):
        call_command("deliver_outbox")
    assert "1 still in progress" in capsys.readouterr().out
    assert left() == ["stuck"]
    deliveries.go_on.set()
    assert delivery.close(SECONDS_MAX)
    assert left() == []


def test_a_database_error_is_raised_and_not_taken_for_an_empty_outbox(
    deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> list[outbox.Message]:
        raise DatabaseError("the database is away")

    monkeypatch.setattr(outbox, "claim", fail)
    with pytest.raises(DatabaseError, match="the database is away"):
        call_command("deliver_outbox")
