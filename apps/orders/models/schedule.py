"""Notices of a changed date: the mails to buyers and recipients, and the return window that the change opens."""

from django.db import models
from django.db.models import Q

from apps.orders.models.orders import Order
from apps.orders.models.tickets import TicketTransfer


class ScheduleNotice(models.Model):
    """The notice of one change of an event's date and times."""

    change = models.OneToOneField("events.EventChange", on_delete=models.PROTECT, primary_key=True, related_name="+")
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField()
    orders_until = models.DateTimeField(
        help_text="Orders placed until then get a mail: their seats may have been reserved before the change."
    )
    return_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then these orders may be returned, fees included; empty: no window."
    )
    finished_at = models.DateTimeField(null=True, blank=True, help_text="When no order without a mail was left.")

    class Meta:
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"{self.event}: notice of {self.at:%Y-%m-%d %H:%M}"


class ScheduleMail(models.Model):
    """A mail of a notice, to the buyer of an order or to the recipient of a transferred ticket: one for each address.
    Without an address of its own, which only the order or the transfer has."""

    notice = models.ForeignKey(ScheduleNotice, on_delete=models.CASCADE, related_name="mails")
    order = models.ForeignKey(Order, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    transfer = models.ForeignKey(TicketTransfer, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["notice", "order"], name="schedule_mail_once_per_order"),
            models.UniqueConstraint(fields=["notice", "transfer"], name="schedule_mail_once_per_transfer"),
            models.CheckConstraint(
                condition=Q(order__isnull=False, transfer__isnull=True) | Q(order__isnull=True, transfer__isnull=False),
                name="schedule_mail_has_one_recipient",
            ),
        ]

    def __str__(self) -> str:
        return f"mail {self.pk} of {self.notice_id}"
