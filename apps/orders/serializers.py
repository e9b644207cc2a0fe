"""OpenAPI schema of orders. `buyer_details.read_details` validates a checkout's body."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.events import facade as events
from apps.kernel.http.openapi import ONE_LINE_OR_BLANK, unique_texts
from apps.orders.models import Order, Payment, Refund
from apps.orders.return_quotes import TICKETS_MAX

_OPTIONAL: dict[str, Any] = {"required": False, "allow_null": True, "allow_blank": True}


@extend_schema_field(
    {
        "anyOf": [
            {"type": "string", "format": "email", "maxLength": 254},
            {"type": "string", "pattern": r"^\s*$"},
        ]
    }
)
class Email(serializers.CharField):
    """An address, or blank."""


class CheckoutSerializer(serializers.Serializer):
    email = Email(
        **_OPTIONAL,
        help_text="Required for guests. Default, also for null and blank: the account's address.",
    )
    name = serializers.RegexField(
        ONE_LINE_OR_BLANK,
        **_OPTIONAL,
        max_length=120,
        help_text="Who the tickets are for. Default, also for null and blank: the account's name.",
    )
    code = serializers.CharField(
        **_OPTIONAL,
        help_text="A promo code; case and blanks are ignored. A retry after a decline keeps its order's code if this "
        "is omitted or null, and gives it up if this is empty.",
    )
    terms = serializers.CharField(
        **_OPTIONAL,
        help_text="The version of the organizer's terms and privacy notice that the buyer has accepted, as in the "
        "quote. Required for a new order if the organizer has them.",
    )
    payment_method = serializers.CharField(
        **_OPTIONAL,
        help_text="One of the provider's methods, see docs/payments.md. Default: its first.",
    )


class QuoteSerializer(serializers.Serializer):
    code = serializers.CharField(**_OPTIONAL, help_text="A promo code. Omitted, null or empty: no code.")
    email = serializers.CharField(
        **_OPTIONAL,
        help_text="Checked against the code's limit per buyer, if any.",
    )


class LegalPageSerializer(serializers.Serializer):
    kind = serializers.ChoiceField(choices=["terms", "privacy"])
    url = serializers.URLField()


class TermsSerializer(serializers.Serializer):
    version = serializers.CharField(help_text="What the checkout sends as `terms`.")
    pages = LegalPageSerializer(many=True)


class QuoteAnswerSerializer(serializers.Serializer):
    code = serializers.CharField(help_text="The promo code applied to the bill; empty: none.")
    total_minor = serializers.IntegerField(help_text="The bill's total.")
    currency = serializers.CharField()
    bill = events.describe_bill()
    terms = TermsSerializer(allow_null=True, help_text="What to accept at checkout; null: nothing.")


class NextActionSerializer(serializers.Serializer):
    type = serializers.ChoiceField(choices=["redirect", "stripe"])
    url = serializers.CharField(required=False, help_text="redirect: where to send the buyer.")
    client_secret = serializers.CharField(required=False, help_text="stripe: for Stripe.js.")
    publishable_key = serializers.CharField(required=False, help_text="stripe: for Stripe.js.")


class PaymentSerializer(serializers.Serializer):
    provider = serializers.CharField()
    method = serializers.CharField()
    state = serializers.ChoiceField(choices=[*Payment.Status.values, "none"], help_text="Of the latest attempt.")
    attempt = serializers.IntegerField()
    attempts_left = serializers.IntegerField()
    refunded_minor = serializers.IntegerField(help_text="Refunded, or being refunded.")
    next_action = NextActionSerializer(allow_null=True, help_text="What the buyer must do now; null: nothing.")


class CheckoutAnswerSerializer(serializers.Serializer):
    order_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Order.Status.choices)
    total_minor = serializers.IntegerField(help_text="The bill's total.")
    currency = serializers.CharField()
    bill = events.describe_bill()
    payment = PaymentSerializer()


class TicketSerializer(serializers.Serializer):
    code = serializers.CharField(help_text="Empty once the ticket is transferred: only its recipient gets the code.")
    label = serializers.CharField()  # type: ignore[assignment]  # The stubs confuse it with Field.label.
    section = serializers.CharField()
    row = serializers.CharField(help_text="Empty for general admission.")
    number = serializers.CharField(help_text="Empty for general admission.")
    category = serializers.CharField()
    price_minor = serializers.IntegerField()
    holder = serializers.CharField()
    valid = serializers.BooleanField()
    transferred = serializers.BooleanField(help_text="It is a recipient's; `code`, `holder` and `url` are empty.")
    checked_in_at = serializers.DateTimeField(allow_null=True)
    url = serializers.CharField(help_text="Absolute.")


class RefundSerializer(serializers.Serializer):
    refund_id = serializers.UUIDField()
    amount_minor = serializers.IntegerField()
    state = serializers.ChoiceField(
        choices=Refund.Status.choices, help_text="failed: the organizer will handle it; paid_out: paid by other means."
    )
    requested_at = serializers.DateTimeField()
    settled_at = serializers.DateTimeField(allow_null=True)


class ReturnsSerializer(serializers.Serializer):
    open = serializers.BooleanField(help_text="Whether tickets may be returned now.")
    until = serializers.DateTimeField()
    keeps_fees = serializers.BooleanField(help_text="Whether the organizer keeps the fees of returned tickets.")


class TransferTermsSerializer(serializers.Serializer):
    open = serializers.BooleanField(help_text="Whether tickets may be transferred now.")
    until = serializers.DateTimeField()


class OrderLookupSerializer(serializers.Serializer):
    email = serializers.EmailField(help_text="The address of the orders, and of the mail.")


class OfferSerializer(serializers.Serializer):
    ticket = serializers.CharField(help_text="The code of the ticket.")
    email = serializers.EmailField(help_text="The recipient's address.")


class TransferSerializer(serializers.Serializer):
    transfer_id = serializers.UUIDField()
    ticket = serializers.CharField(help_text="The code of the ticket that was offered.")
    label = serializers.CharField()  # type: ignore[assignment]  # The stubs confuse it with Field.label.
    email = serializers.EmailField()
    state = serializers.ChoiceField(
        choices=["offered", "accepted", "expired", "withdrawn", "void"],
        help_text="void: the ticket was returned, replaced or refunded before the offer was accepted.",
    )
    offered_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()


@extend_schema_field(
    unique_texts(minItems=1, maxItems=TICKETS_MAX, items={"type": "string", "pattern": "^[ -~]+$"}),
)
class TicketCodes(serializers.ListField):
    child = serializers.CharField()


class ReturnSerializer(serializers.Serializer):
    tickets = TicketCodes(help_text="Their codes.")


class ReturnAnswerSerializer(serializers.Serializer):
    order_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Order.Status.choices)
    tickets = serializers.ListField(child=serializers.CharField(), help_text="The returned tickets, no longer valid.")
    amount_minor = serializers.IntegerField(help_text="The amount that is refunded.")
    kept_minor = serializers.IntegerField(help_text="Fees that the organizer keeps.")
    currency = serializers.CharField()


class PaperSerializer(serializers.Serializer):
    number = serializers.CharField()
    kind = serializers.ChoiceField(choices=["invoice", "credit_note"])
    issued_at = serializers.DateTimeField()
    total_minor = serializers.IntegerField(help_text="The amount paid; for a credit note, refunded.")
    url = serializers.URLField(help_text="The PDF; requires access to the order.")


class OrderSerializer(CheckoutAnswerSerializer):
    number = serializers.CharField(help_text="A random number that is easy to read aloud.")
    reservation_id = serializers.UUIDField()
    event_id = serializers.SlugField()
    email = serializers.EmailField()
    name = serializers.CharField()
    placed_at = serializers.DateTimeField()
    pay_deadline = serializers.DateTimeField()
    can_try_again = serializers.BooleanField(
        help_text="The payment was declined, and tries and time are left: check out again."
    )
    message = serializers.CharField(help_text="A message for the buyer; empty when all is well.")
    refunds = RefundSerializer(many=True)
    returns = ReturnsSerializer(allow_null=True, help_text="The terms for returning its tickets; null: not allowed.")
    transfer_terms = TransferTermsSerializer(
        allow_null=True, help_text="The terms for passing its tickets to other people; null: not allowed."
    )
    transfers = TransferSerializer(many=True, help_text="Those that its buyer has started, oldest first.")
    invoices = PaperSerializer(many=True, help_text="Invoice and credit notes, written shortly after each payment.")
    tickets = TicketSerializer(many=True)


class OrderListSerializer(serializers.Serializer):
    orders = OrderSerializer(many=True)


class StoredSerializer(serializers.Serializer):
    stored = serializers.BooleanField(help_text="Always true.")
