"""Rules that a schema cannot express: calls that match the document and are refused nevertheless, with the reason."""

import re
from typing import Any, NamedTuple


class Rule(NamedTuple):
    operations: tuple[str, ...]
    type: str
    """The type in the refusal's problem document."""
    detail: str
    """A regular expression that its `detail` matches."""
    reason: str


RULES = (
    Rule(
        ("hold", "list_offers"),
        "invalid",
        r"no such |no seats cost that little",
        "which seats, sections and categories there are is the event's plan",
    ),
    Rule(
        ("hold", "list_offers"),
        "invalid",
        r"^body: |at most \d+ ",
        "each event has its own limit, and a hold is of something",
    ),
    Rule(("search_events",), "invalid", r"when: ", "a word, a day of the calendar, or two days in their order"),
    Rule(("hold",), "invalid", r"ga_quantity: ", "a section needs a quantity, and a quantity a section"),
    Rule(
        ("hold", "list_offers"),
        "invalid",
        r"companions: ",
        "companions sit beside accessible seats, and count among the quantity",
    ),
    Rule(("hold", "list_offers"), "invalid", r"access_code: ", "codes are normalized before their length is judged"),
    Rule(
        ("check_out", "quote"),
        "invalid",
        r"(^|; )code: ",
        "the same of promo codes; attempts of one order share it",
    ),
    Rule(("check_out",), "invalid", r"name: is required", "a name has a visible character"),
    Rule(("check_out",), "invalid", r"payment_method: ", "which methods there are is the provider's choice"),
    Rule(("check_out",), "invalid", r"email: .*attempts|email: .*tries", "attempts of one order have one buyer"),
    Rule(("check_out", "quote"), "code-unknown", "", "which codes there are is the organizer's choice"),
    Rule(
        ("hold", "list_offers", "list_seats", "listen_to_updates"),
        "admission-expired",
        "",
        "an admission lasts five minutes",
    ),
    Rule(("hold", "check_out", "quote"), "reservation-expired", "", "the deadline of a reservation passes"),
    Rule(
        ("hold", "check_out", "cancel_order", "return_tickets", "check_in"),
        "idempotency-mismatch",
        "",
        "a key names one request, and calls share a few keys",
    ),
    Rule(
        ("hold", "return_tickets"),
        "invalid",
        r"twice",
        "the generator puts known values into lists of different items",
    ),
    Rule(("return_tickets",), "invalid", r"tickets: not tickets", "each order has its own tickets"),
    Rule(
        ("send_feed_messages",),
        "idempotency-mismatch",
        "",
        "an id names one message, and calls share a few ids",
    ),
    Rule(("send_feed_messages",), "invalid", "an id of its own", "a schema cannot compare members of a list"),
    Rule(("put_feed",), "invalid", "feed: ", "names of feeds are checked when they are made"),
    Rule(("receive_payment_message",), "signature-invalid", "", "only the provider can sign"),
)
KEPT_AFTER_DELETE = {
    "get_reservation": "a released reservation is shown as canceled",
    "release_reservation": "releasing again changes nothing",
    "queue_status": "an entry that has left is shown as left",
    "leave_queue": "leaving again changes nothing",
    "delete_feed_message": "deleting again changes nothing",
}
"""Operations that still return what was deleted, with the reason."""


def is_business_rule(operation: str, document: Any) -> bool:
    """Return whether this refusal of a well-formed request is one of the rules."""
    return isinstance(document, dict) and any(
        operation in rule.operations
        and rule.type == document.get("type")
        and re.search(rule.detail, document["detail"])
        for rule in RULES
    )
