"""The catalogue as the API says it."""

from rest_framework import serializers

STATES = ("upcoming", "on_sale", "sold_out", "closed", "canceled")


class VenueSerializer(serializers.Serializer):
    name = serializers.CharField()
    city = serializers.CharField()
    timezone = serializers.CharField(help_text="IANA name.")


class EventSerializer(serializers.Serializer):
    event_id = serializers.SlugField(help_text="The event's slug, in every address.")
    name = serializers.CharField()
    venue = VenueSerializer()
    starts_at = serializers.DateTimeField()
    status = serializers.ChoiceField(choices=STATES)
    opens_at = serializers.DateTimeField(help_text="When the on-sale opens.")
    lobby_opens_at = serializers.DateTimeField(
        allow_null=True, help_text="From then until opens_at one may join the lobby, whose order is drawn; null: none."
    )
    closes_at = serializers.DateTimeField(allow_null=True)
    currency = serializers.CharField(help_text="ISO 4217.")
    from_price_minor = serializers.IntegerField(allow_null=True, help_text="The lowest, fee and tax of a ticket in it.")
    available_seats = serializers.IntegerField(allow_null=True)
    poster_url = serializers.CharField()


class EventListSerializer(serializers.Serializer):
    events = EventSerializer(many=True)


class PricePolicySerializer(serializers.Serializer):
    """What is charged beside the prices of sections and seats, which are faces."""

    ticket_fee_minor = serializers.IntegerField(help_text="On each place,")
    ticket_fee_rate = serializers.IntegerField(help_text="and so many basis points of its price.")
    order_fee_minor = serializers.IntegerField(help_text="Once per order.")
    waives_fees_when_free = serializers.BooleanField(help_text="What costs nothing bears no fee.")
    tax_rate = serializers.IntegerField(help_text="Basis points, on prices and fees.")
    tax_included = serializers.BooleanField(help_text="They have the tax in them; else it is added.")


class EventDetailSerializer(EventSerializer):
    description = serializers.CharField()
    hold_minutes = serializers.IntegerField()
    seats_per_reservation = serializers.IntegerField()
    per_buyer_cap = serializers.IntegerField(allow_null=True)
    price_policy = PricePolicySerializer()


class BillLineSerializer(serializers.Serializer):
    kind = serializers.ChoiceField(choices=["place", "fee"])
    description = serializers.CharField()
    category = serializers.CharField(help_text="Empty for a fee.")
    price_minor = serializers.IntegerField(help_text="Its face.")
    discount_minor = serializers.IntegerField(help_text="Off the price.")
    fee_minor = serializers.IntegerField(help_text="Of a place, beside its price.")
    tax_rate = serializers.IntegerField(help_text="Basis points.")
    tax_minor = serializers.IntegerField(help_text="Within the total.")
    total_minor = serializers.IntegerField()
    canceled = serializers.BooleanField(help_text="Given back since.")


class BillSerializer(serializers.Serializer):
    """The sums of its lines; total = places − discount + fees + tax added."""

    lines = BillLineSerializer(many=True)
    places_minor = serializers.IntegerField(help_text="Face prices.")
    discount_minor = serializers.IntegerField()
    fees_minor = serializers.IntegerField()
    tax_minor = serializers.IntegerField(help_text="Within the total, included or added.")
    tax_added_minor = serializers.IntegerField(help_text="What of it comes on top of prices and fees.")
    total_minor = serializers.IntegerField()
