"""Sign-ups for the draw of an event's lobby."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from apps.kernel.rate_limits import mailboxes


class SignUp(models.Model):
    """A person who has signed up for the event's draw. The address is stored as an HMAC of its mailbox."""

    id = models.BigAutoField(primary_key=True)
    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+", db_index=False)
    account = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    person = models.BinaryField(max_length=32, help_text="HMAC of the confirmed mailbox.")
    signed_up_at = models.DateTimeField()
    mail_at = models.DateTimeField(null=True, blank=True, help_text="When the mail about the draw was scheduled.")
    origin = models.CharField(
        max_length=16,
        blank=True,
        help_text="Keyed digest of the network that signed up, for turns of mails; blank once the last was scheduled.",
    )
    reminded_at = models.DateTimeField(null=True, blank=True, help_text="When the reminder before it was scheduled.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["event", "person"], name="sign_up_once_per_person"),
            models.UniqueConstraint(fields=["event", "account"], name="sign_up_once_per_account"),
        ]
        indexes = [
            models.Index(fields=["event"], condition=Q(mail_at__isnull=True), name="sign_up_without_mail"),
            models.Index(fields=["event"], condition=Q(reminded_at__isnull=True), name="sign_up_without_reminder"),
        ]

    def __str__(self) -> str:
        return f"sign-up {self.pk}"

    @staticmethod
    def person_of(address: str) -> bytes:
        """Return the digest that stands for the person with this address."""
        return mailboxes.mailbox_digest("sign-up", address)
