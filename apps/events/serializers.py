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
    from_price_minor = serializers.IntegerField(allow_null=True, help_text="The lowest price.")
    available_seats = serializers.IntegerField(allow_null=True)
    poster_url = serializers.CharField()


class EventListSerializer(serializers.Serializer):
    events = EventSerializer(many=True)


class EventDetailSerializer(EventSerializer):
    description = serializers.CharField()
    hold_minutes = serializers.IntegerField()
    seats_per_reservation = serializers.IntegerField()
    per_buyer_cap = serializers.IntegerField(allow_null=True)
