"""The sale as the API says it. These describe; what a checkout accepts is decided by `buyer_details.read_details`."""

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from apps.events import facade as events
from apps.orders.models import Order, Payment, Refund
from apps.orders.return_quotes import TICKETS_MAX

ORDER_LINK = OpenApiParameter("key", str, description="From the signed link in the e-mail, for guests.")


class CheckoutSerializer(serializers.Serializer):
    email = serializers.EmailField(required=False, help_text="Guests must; an account's own stands in.")
    name = serializers.CharField(required=False, max_length=120, help_text="Who the tickets are for.")
    code = serializers.CharField(required=False, help_text="A promo code; capitals and blanks do not matter.")
    payment_method = serializers.CharField(
        required=False, help_text="One of the provider's: docs/payments.md. Its first where left out."
    )


class QuoteSerializer(serializers.Serializer):
    code = serializers.CharField(required=False, help_text="A promo code; left out or empty: the bill without one.")
    email = serializers.CharField(required=False, help_text="Judged by the code's limit per buyer, where it has one.")


class QuoteAnswerSerializer(serializers.Serializer):
    code = serializers.CharField(help_text="The promo code in the bill; empty: none.")
    total_minor = serializers.IntegerField(help_text="All that is to be paid: the bill's.")
    currency = serializers.CharField()
    bill = events.describe_bill()


class NextActionSerializer(serializers.Serializer):
    type = serializers.ChoiceField(choices=["redirect", "stripe"])
    url = serializers.CharField(required=False, help_text="redirect: send the buyer there.")
    client_secret = serializers.CharField(required=False, help_text="stripe: for its script.")
    publishable_key = serializers.CharField(required=False, help_text="stripe: for its script.")


class PaymentSerializer(serializers.Serializer):
    provider = serializers.CharField()
    method = serializers.CharField()
    state = serializers.ChoiceField(choices=[*Payment.Status.values, "none"], help_text="Of the latest attempt.")
    attempt = serializers.IntegerField()
    attempts_left = serializers.IntegerField()
    refunded_minor = serializers.IntegerField(help_text="Given back, or on its way back.")
    next_action = NextActionSerializer(allow_null=True, help_text="What the buyer must do now; null: nothing.")


class CheckoutAnswerSerializer(serializers.Serializer):
    order_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Order.Status.choices)
    total_minor = serializers.IntegerField(help_text="All that is to be paid: the bill's.")
    currency = serializers.CharField()
    bill = events.describe_bill()
    payment = PaymentSerializer()


class TicketSerializer(serializers.Serializer):
    code = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # The stubs take it for Field's own label.
    section = serializers.CharField()
    row = serializers.CharField(help_text="Empty for general admission.")
    number = serializers.CharField(help_text="Empty for general admission.")
    category = serializers.CharField()
    price_minor = serializers.IntegerField()
    holder = serializers.CharField()
    valid = serializers.BooleanField()
    checked_in_at = serializers.DateTimeField(allow_null=True)
    url = serializers.URLField()


class RefundSerializer(serializers.Serializer):
    refund_id = serializers.UUIDField()
    amount_minor = serializers.IntegerField()
    state = serializers.ChoiceField(
        choices=Refund.Status.choices, help_text="failed: the organizer sees to it; paid_out: and has, by other means."
    )
    requested_at = serializers.DateTimeField()
    settled_at = serializers.DateTimeField(allow_null=True)


class ReturnsSerializer(serializers.Serializer):
    open = serializers.BooleanField(help_text="Tickets may be returned now.")
    until = serializers.DateTimeField()
    keeps_fees = serializers.BooleanField(help_text="Fees of returned tickets stay with the organizer.")


class ReturnSerializer(serializers.Serializer):
    tickets = serializers.ListField(child=serializers.CharField(), min_length=1, max_length=TICKETS_MAX)


class ReturnAnswerSerializer(serializers.Serializer):
    order_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Order.Status.choices)
    tickets = serializers.ListField(child=serializers.CharField(), help_text="No longer valid.")
    amount_minor = serializers.IntegerField(help_text="On its way back.")
    kept_minor = serializers.IntegerField(help_text="Fees that stay with the organizer.")
    currency = serializers.CharField()


class PaperSerializer(serializers.Serializer):
    number = serializers.CharField()
    kind = serializers.ChoiceField(choices=["invoice", "credit_note"])
    issued_at = serializers.DateTimeField()
    total_minor = serializers.IntegerField(help_text="Paid; of a credit note: given back.")
    url = serializers.URLField(help_text="The PDF, for whoever may see the order.")


class OrderSerializer(CheckoutAnswerSerializer):
    number = serializers.CharField(help_text="To read out; says nothing about how many orders there are.")
    reservation_id = serializers.UUIDField()
    event_id = serializers.SlugField()
    email = serializers.EmailField()
    name = serializers.CharField()
    placed_at = serializers.DateTimeField()
    pay_deadline = serializers.DateTimeField()
    can_try_again = serializers.BooleanField(help_text="Declined, with tries and time left: check out again.")
    message = serializers.CharField(help_text="What the buyer should know; empty when all is well.")
    refunds = RefundSerializer(many=True)
    returns = ReturnsSerializer(allow_null=True, help_text="How its tickets may be returned; null: they may not.")
    invoices = PaperSerializer(many=True, help_text="Written a moment after the money moved.")
    tickets = TicketSerializer(many=True)


class OrderListSerializer(serializers.Serializer):
    orders = OrderSerializer(many=True)


class StoredSerializer(serializers.Serializer):
    stored = serializers.BooleanField(help_text="Always true.")
