"""POST /reservations: {"buyer", "seats": [id, …]} → 201, or 409 if a seat is not available."""

from datetime import timedelta

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from benchmarks.suite.baselines.idiomatic.models import Reservation, ReservedSeat, Seat, Section


class HoldSerializer(serializers.Serializer):  # type: ignore[type-arg]
    buyer = serializers.CharField(max_length=80)
    seats = serializers.ListField(child=serializers.IntegerField(min_value=1), min_length=1, max_length=8)


class ReservationsView(APIView):
    def post(self, request: Request) -> Response:
        serializer = HoldSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        wanted = serializer.validated_data["seats"]
        with transaction.atomic():
            seats = list(Seat.objects.select_for_update(no_key=True).filter(pk__in=wanted, is_free=True).order_by("pk"))
            if len(seats) < len(wanted):
                return Response({"detail": "Some of these seats are not available."}, status=409)
            reservation = Reservation.objects.create(
                buyer=serializer.validated_data["buyer"], expires_at=timezone.now() + timedelta(minutes=10)
            )
            ReservedSeat.objects.bulk_create([ReservedSeat(reservation=reservation, seat=seat) for seat in seats])
            Seat.objects.filter(pk__in=wanted).update(is_free=False)
            Section.objects.filter(pk=seats[0].section_id).update(available=F("available") - len(seats))
        return Response(
            {"reservation_id": reservation.pk, "reserved_until": reservation.expires_at, "seats": wanted}, status=201
        )
