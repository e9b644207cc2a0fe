"""A charge whose worker loses the database: it is tried again within seconds, and the card is charged once."""

from typing import Any

import pytest
from django.db import close_old_connections

from apps.kernel import clock
from apps.kernel.outbox import delivery
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.models import Order
from apps.orders.provider_sync import charges, inbox
from tests.support.databases import lose_the_database
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import deliver_outbox, place_order
from tests.support.orders.sandbox_rows import SandboxCharge

pytestmark = pytest.mark.django_db(transaction=True)

SCANNED_EVERY_SECONDS = 1.0
"""The maintenance loop wakes a worker for due messages at this interval."""


@pytest.mark.slow
@pytest.mark.parametrize("charged", [False, True], ids=["before the charge", "after the charge"])
def test_a_charge_cut_by_the_loss_of_the_database_is_confirmed_within_seconds(
    charged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker marks the attempt as started and calls the provider; the database ends before or after the charge.
    Once it is back, the worker ends its claim, and the next attempt asks the provider before it charges. Without the
    worker's end the claim hides the charge for 45 s."""
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    record = inbox.record_provider_answer

    def lose(*args: Any) -> None:
        monkeypatch.setattr(charges, "record_provider_answer", record)
        lose_the_database()

    if charged:
        monkeypatch.setattr(charges, "record_provider_answer", lose)
    else:
        start = charges._start

        def lose_after_start(payment_id: Any) -> Any:
            step = start(payment_id)
            monkeypatch.setattr(charges, "_start", start)
            lose_the_database()
            return step

        monkeypatch.setattr(charges, "_start", lose_after_start)
    (message,) = outbox.claim(1)
    assert message.topic == topics.CHARGE
    with pytest.raises(outbox.ClaimNotEnded) as claim:
        outbox.hand_over(message)
    close_old_connections()
    assert SandboxCharge.objects.count() == int(charged)
    claim.value.end()  # As the delivery does, every END_AGAIN_SECONDS.
    waiting = OutboxMessage.objects.get(topic=topics.CHARGE)
    assert waiting.claimed_until is None
    wait_seconds = (waiting.available_at - clock.now()).total_seconds()
    assert wait_seconds + delivery.END_AGAIN_SECONDS + SCANNED_EVERY_SECONDS <= 5
    OutboxMessage.objects.filter(pk=waiting.pk).update(available_at=clock.now())
    deliver_outbox()
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    assert SandboxCharge.objects.count() == 1
    assert_audit_clean()
