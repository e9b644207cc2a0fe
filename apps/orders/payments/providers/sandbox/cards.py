"""The sandbox's test cards: what each of them does to a charge, as data. The two that everybody needs come first."""

from dataclasses import dataclass

APPROVES, DECLINES, LATE = "sandbox", "sandbox_decline", "sandbox_late"
CHALLENGES = "sandbox_challenge"
TIMES_OUT, TIMES_OUT_CHARGED = "sandbox_timeout", "sandbox_timeout_charged"
DELAYED, DUPLICATED, LOST = "sandbox_delayed", "sandbox_duplicate", "sandbox_lost"
REORDERED, DECLINED_FIRST = "sandbox_reordered", "sandbox_declined_first"
WRONG_AMOUNT = "sandbox_wrong_amount"


@dataclass(frozen=True, slots=True)
class ScheduledWebhook:
    """A webhook: what it says of the charge, in which of the sandbox's pauses it was true and in which it is sent."""

    status: str
    true_after: int
    sent_after: int


@dataclass(frozen=True, slots=True)
class Card:
    """`answer` is what the call itself is told; the books say `then` one pause later, whoever asks."""

    label: str
    answer: str = "succeeded"
    then: str = ""
    words: tuple[ScheduledWebhook, ...] = ()
    times_out: bool = False
    """The first call gets no answer."""
    is_heard: bool = True
    """Also a call that gets no answer did what it asked for."""
    excess_minor: int = 0


_SUCCEEDED = ScheduledWebhook("succeeded", 1, 1)
CARDS = {
    APPROVES: Card("Test card that pays"),
    DECLINES: Card("Test card that is declined", answer="declined"),
    CHALLENGES: Card("Your bank asks you to confirm", answer="pending"),
    TIMES_OUT_CHARGED: Card("Charged, but the answer is lost", times_out=True),
    TIMES_OUT: Card("No answer, and nothing charged", times_out=True, is_heard=False),
    DELAYED: Card("Paid a few seconds later", answer="pending", then="succeeded", words=(_SUCCEEDED,)),
    DUPLICATED: Card("Paid, and told twice", answer="pending", then="succeeded", words=(_SUCCEEDED, _SUCCEEDED)),
    REORDERED: Card(
        "Paid, and told in the wrong order",
        answer="pending",
        then="succeeded",
        words=(_SUCCEEDED, ScheduledWebhook("pending", 0, 2)),
    ),
    DECLINED_FIRST: Card(
        "Declined, and then paid after all",
        answer="pending",
        then="declined",
        words=(ScheduledWebhook("declined", 1, 1), ScheduledWebhook("succeeded", 2, 3)),
    ),
    LOST: Card("Paid, and never told", answer="pending", then="succeeded"),
    WRONG_AMOUNT: Card("A cent too much is paid", excess_minor=1),
    LATE: Card("Paid after the time to pay is over", answer="pending"),
}
METHODS = {method: card.label for method, card in CARDS.items()}
