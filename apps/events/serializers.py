"""Serializers that describe the catalog and bills in the OpenAPI document."""

from rest_framework import serializers

STATES = ("upcoming", "on_sale", "sold_out", "closed", "canceled")


class VenueSerializer(serializers.Serializer):
    name = serializers.CharField()
    city = serializers.CharField()
    timezone = serializers.CharField(help_text="IANA name.")


class EventSerializer(serializers.Serializer):
    event_id = serializers.SlugField(help_text="The event's slug, as in its URLs.")
    name = serializers.CharField()
    venue = VenueSerializer()
    summary = serializers.CharField(help_text="One sentence; may be empty.")
    performers = serializers.ListField(child=serializers.CharField())
    tags = serializers.ListField(child=serializers.CharField())
    language = serializers.CharField(help_text="Of the texts, ISO 639-1; xx: another language.")
    starts_at = serializers.DateTimeField()
    status = serializers.ChoiceField(choices=STATES)
    opens_at = serializers.DateTimeField(help_text="When the on-sale opens.")
    lobby_opens_at = serializers.DateTimeField(
        allow_null=True, help_text="Visitors may join the lobby from then until opens_at; null: no lobby."
    )
    closes_at = serializers.DateTimeField(allow_null=True)
    currency = serializers.CharField(help_text="ISO 4217.")
    from_price_minor = serializers.IntegerField(allow_null=True, help_text="The lowest price, with fee and tax.")
    available_seats = serializers.IntegerField(allow_null=True)
    poster_url = serializers.CharField()


class EventListSerializer(serializers.Serializer):
    events = EventSerializer(many=True)


class PricePolicySerializer(serializers.Serializer):
    """An event's charges beside the face prices of its sections and seats."""

    ticket_fee_minor = serializers.IntegerField(help_text="Per ticket.")
    ticket_fee_rate = serializers.IntegerField(help_text="Per ticket, in basis points of its price.")
    order_fee_minor = serializers.IntegerField(help_text="Once per order.")
    waives_fees_when_free = serializers.BooleanField(help_text="Free tickets bear no fee.")
    tax_rate = serializers.IntegerField(help_text="Basis points, on prices and fees.")
    tax_included = serializers.BooleanField(help_text="Whether prices and fees include the tax; otherwise it is added.")


class PresaleSerializer(serializers.Serializer):
    condition = serializers.ChoiceField(
        choices=["code", "account", "sign_up"],
        help_text="code: joining and holding need an access code; account: an account with a confirmed email address; "
        "sign_up: such an account that has joined the lobby before `sign_up_closes_at`.",
    )
    until = serializers.DateTimeField()
    sign_up_closes_at = serializers.DateTimeField(allow_null=True)


class EventDetailSerializer(EventSerializer):
    description = serializers.CharField()
    hold_minutes = serializers.IntegerField(help_text="`hold_seconds` in whole minutes, rounded down, but at least 1.")
    hold_seconds = serializers.IntegerField(help_text="Time to pay after a hold.")
    seats_per_reservation = serializers.IntegerField()
    per_buyer_cap = serializers.IntegerField(allow_null=True)
    presale = PresaleSerializer(
        allow_null=True, help_text="Until that time only visitors who meet the condition may join and hold."
    )
    price_policy = PricePolicySerializer()


class BillLineSerializer(serializers.Serializer):
    kind = serializers.ChoiceField(choices=["place", "fee"])
    description = serializers.CharField()
    category = serializers.CharField(help_text="Empty for a fee.")
    price_minor = serializers.IntegerField(help_text="Face price.")
    discount_minor = serializers.IntegerField(help_text="Off the price.")
    fee_minor = serializers.IntegerField(help_text="Of a ticket, beside its price.")
    tax_rate = serializers.IntegerField(help_text="Basis points.")
    tax_minor = serializers.IntegerField(help_text="Within the total.")
    total_minor = serializers.IntegerField()
    canceled = serializers.BooleanField(help_text="Canceled after the sale.")


class BillSerializer(serializers.Serializer):
    """The sums of its lines; total = places_minor − discount + fees + added tax."""

    lines = BillLineSerializer(many=True)
    places_minor = serializers.IntegerField(help_text="Face prices.")
    discount_minor = serializers.IntegerField()
    fees_minor = serializers.IntegerField()
    tax_minor = serializers.IntegerField(help_text="Within the total, included or added.")
    tax_added_minor = serializers.IntegerField(help_text="The part of the tax on top of prices and fees.")
    total_minor = serializers.IntegerField()
