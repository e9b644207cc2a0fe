"""Sections with a counter of available seats, seats, reservations and their seats."""

import uuid

from django.db import models


class Section(models.Model):
    available = models.PositiveIntegerField()


class Seat(models.Model):
    section = models.ForeignKey(Section, on_delete=models.CASCADE)
    is_free = models.BooleanField(default=True)


class Reservation(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    buyer = models.CharField(max_length=80)
    expires_at = models.DateTimeField(db_index=True)


class ReservedSeat(models.Model):
    reservation = models.ForeignKey(Reservation, on_delete=models.CASCADE)
    seat = models.ForeignKey(Seat, on_delete=models.CASCADE)
