"""The sandbox's test cards and their effects on a charge, as data. The two most used cards come first."""

from dataclasses import dataclass

APPROVES, DECLINES, LATE = "sandbox", "sandbox_decline", "sandbox_late"
CHALLENGES = "sandbox_challenge"
TIMES_OUT, TIMES_OUT_CHARGED = "sandbox_timeout", "sandbox_timeout_charged"
DELAYED, DUPLICATED, LOST = "sandbox_delayed", "sandbox_duplicate", "sandbox_lost"
REORDERED, DECLINED_FIRST = "sandbox_reordered", "sandbox_declined_first"
WRONG_AMOUNT = "sandbox_wrong_amount"


@dataclass(frozen=True, slots=True)
class ScheduledWebhook:
    """A webhook that a card schedules. The charge reaches `status` after `true_after` sandbox pauses, and the webhook
    is sent after `sent_after` pauses."""

    status: str
    true_after: int
    sent_after: int


@dataclass(frozen=True, slots=True)
class Card:
    """A test card. `answer` is the status that the charge request returns; `then` is the charge's status one pause
    later, also for inquiries."""

    label: str
    answer: str = "succeeded"
    then: str = ""
    webhooks: tuple[ScheduledWebhook, ...] = ()
    times_out: bool = False
    """The first request gets no response."""
    is_received: bool = True
    """Whether the first request created the charge, with or without a response."""
    excess_minor: int = 0


_SUCCEEDED = ScheduledWebhook("succeeded", 1, 1)
CARDS = {
    APPROVES: Card("Test card: approved"),
    DECLINES: Card("Test card: declined", answer="declined"),
    CHALLENGES: Card("Test card: bank confirmation required", answer="pending"),
    TIMES_OUT_CHARGED: Card("Test card: charged, but the response is lost", times_out=True),
    TIMES_OUT: Card("Test card: request lost, not charged", times_out=True, is_received=False),
    DELAYED: Card("Test card: paid a few seconds later", answer="pending", then="succeeded", webhooks=(_SUCCEEDED,)),
    DUPLICATED: Card(
        "Test card: paid, webhook sent twice",
        answer="pending",
        then="succeeded",
        webhooks=(_SUCCEEDED, _SUCCEEDED),
    ),
    REORDERED: Card(
        "Test card: paid, webhooks out of order",
        answer="pending",
        then="succeeded",
        webhooks=(_SUCCEEDED, ScheduledWebhook("pending", 0, 2)),
    ),
    DECLINED_FIRST: Card(
        "Test card: declined, then paid",
        answer="pending",
        then="declined",
        webhooks=(ScheduledWebhook("declined", 1, 1), ScheduledWebhook("succeeded", 2, 3)),
    ),
    LOST: Card("Test card: paid, webhook lost", answer="pending", then="succeeded"),
    WRONG_AMOUNT: Card("Test card: one cent too much is paid", excess_minor=1),
    LATE: Card("Test card: paid after the payment deadline", answer="pending"),
}
METHODS = {method: card.label for method, card in CARDS.items()}
