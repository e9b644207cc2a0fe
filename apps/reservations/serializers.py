"""Request bodies and responses of the reservations API, for the OpenAPI document; services validate requests."""

from drf_spectacular.utils import extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from apps.events import facade as events
from apps.kernel.http.openapi import unique_texts
from apps.reservations.models import Reservation

SEAT_STATUSES = ["available", "held", "sold", "blocked"]
QUANTITY_MAX = 1_000_000
PRICE_MAX_MINOR = 10**12
SEAT_ID_LENGTH_MAX = 120
SECTIONS_MAX = 4
"""The number of sections whose seats one client can follow: as many as a zoomed-in map shows."""


class Price(serializers.Serializer):
    category = serializers.CharField()
    price_minor = serializers.IntegerField()


class SectionCounts(serializers.Serializer):
    section_id = serializers.SlugField()
    name = serializers.CharField()
    type = serializers.ChoiceField(choices=["reserved", "general_admission"])
    total_seats = serializers.IntegerField()
    available_seats = serializers.IntegerField()
    needs_access = serializers.BooleanField(help_text="Holds here require an access code.")
    prices = Price(many=True)
    currency = serializers.CharField(help_text="ISO 4217.")


class UpdateFrame(serializers.Serializer):
    event = serializers.CharField(help_text="The frame's type: sections, queue, state, seats, reservation, order, …")
    id = serializers.CharField(allow_blank=True, help_text="To send as `since` in a later request; may be empty.")
    data = serializers.JSONField()  # type: ignore[assignment] # The contract's name hides an attribute of Serializer.


class Updates(serializers.Serializer):
    frames = UpdateFrame(many=True)
    next_poll = serializers.IntegerField(help_text="Milliseconds until the next poll.")


class Sections(serializers.Serializer):
    sections = SectionCounts(many=True)


class SeatState(serializers.Serializer):
    seat_id = serializers.CharField()
    row = serializers.CharField()
    number = serializers.CharField()
    category = serializers.CharField()
    status = serializers.ChoiceField(choices=SEAT_STATUSES)
    accessible = serializers.BooleanField()


class Seats(serializers.Serializer):
    seats = SeatState(many=True)
    page = serializers.IntegerField()
    page_size = serializers.IntegerField()
    total = serializers.IntegerField()


class BestAvailableBody(serializers.Serializer):
    section = serializers.CharField(required=False, allow_null=True, help_text="If missing: any section with seats.")
    quantity = serializers.IntegerField(min_value=1, max_value=QUANTITY_MAX)
    category = serializers.CharField(required=False, allow_null=True)
    price_max_minor = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=PRICE_MAX_MINOR,
        help_text="The most that one ticket may cost, with its fee and tax.",
    )
    accessible = serializers.BooleanField(required=False, default=False)
    companions = serializers.IntegerField(
        required=False,
        default=0,
        min_value=0,
        max_value=QUANTITY_MAX,
        help_text="Of the quantity: seats beside an accessible seat.",
    )


@extend_schema_field(
    unique_texts(items={"type": "string", "minLength": 1, "maxLength": SEAT_ID_LENGTH_MAX}),
)
class SeatIds(serializers.ListField):
    child = serializers.CharField()


@extend_schema_serializer(component_name="HoldBody")
class HoldBody(serializers.Serializer):
    seats = SeatIds(required=False, allow_null=True, help_text="Seat ids.")
    ga_section = serializers.CharField(required=False, allow_null=True, help_text="With `ga_quantity`.")
    ga_quantity = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=QUANTITY_MAX)
    best_available = BestAvailableBody(required=False, allow_null=True)
    access_code = serializers.CharField(
        required=False,
        allow_null=True,
        allow_blank=True,
        help_text="Opens sections that require one; ignored by others.",
    )
    replace = serializers.UUIDField(
        required=False,
        allow_null=True,
        help_text="A live reservation of the same buyer, released if and only if this hold succeeds.",
    )


class OffersBody(serializers.Serializer):
    best_available = BestAvailableBody()
    access_code = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, help_text="Opens sections that require one."
    )
    replace = serializers.UUIDField(
        required=False, allow_null=True, help_text="The caller's live reservation, whose seats count as free."
    )


class OfferedSeat(serializers.Serializer):
    seat_id = serializers.CharField()
    section_id = serializers.SlugField()
    row = serializers.CharField()
    number = serializers.CharField()
    category = serializers.CharField()
    price_minor = serializers.IntegerField()


class Offer(serializers.Serializer):
    seats = OfferedSeat(many=True)
    together = serializers.BooleanField(help_text="Whether the seats are side by side in one row.")
    total_minor = serializers.IntegerField(help_text="The sum of the face values.")
    to_pay_minor = serializers.IntegerField(help_text="What the order would cost, with fees and tax.")
    currency = serializers.CharField()


class Offers(serializers.Serializer):
    offers = Offer(many=True)


class ReservationState(serializers.Serializer):
    reservation_id = serializers.UUIDField()
    reserved_until = serializers.DateTimeField(help_text="The current deadline.")
    seats = serializers.ListField(child=serializers.CharField(), help_text="Seat ids.")
    ga_section = serializers.SlugField(allow_null=True)
    ga_quantity = serializers.IntegerField()
    total_minor = serializers.IntegerField(help_text="The sum of the face values; the bill has fees and tax.")
    currency = serializers.CharField()
    status = serializers.ChoiceField(choices=Reservation.Status.choices)


class ReservationDetail(ReservationState):
    bill = events.describe_bill()
