"""The lobby's draw, and the keys that receipts are signed with."""

from django.db import models


class Draw(models.Model):
    """One per room with a lobby: what was committed to before it, what came of it. The secret is shown only once it is
    revealed; until then it is the operator's to keep, and the commitment is what binds them to it."""

    event = models.OneToOneField("events.Event", on_delete=models.CASCADE, primary_key=True, related_name="draw")
    statement = models.TextField(help_text="The canonical JSON that is committed to: rule, beacon, deadline, fallback.")
    commitment = models.BinaryField(max_length=32, help_text="SHA-256 of the statement.")
    committed_at = models.DateTimeField()
    secret = models.BinaryField(max_length=32)
    reveal_by = models.DateTimeField(help_text="Later than this it is revealed without the beacon.")
    frozen_at = models.DateTimeField(null=True, blank=True, help_text="The opening: nobody enters the lobby any more.")
    digest = models.BinaryField(
        max_length=32, null=True, blank=True, help_text="Over the sorted leaves of all entrants."
    )
    digest_at = models.DateTimeField(null=True, blank=True)
    beacon_value = models.BinaryField(null=True, blank=True)
    revealed_at = models.DateTimeField(null=True, blank=True)
    seed = models.BinaryField(max_length=32, null=True, blank=True)
    is_operator_proof = models.BooleanField(null=True, help_text="Whether an outside beacon was mixed in.")
    drawn_at = models.DateTimeField(null=True, blank=True, help_text="Every entrant's number stands in the draw.")
    numbered_at = models.DateTimeField(null=True, blank=True, help_text="Every entry has its number.")

    def __str__(self) -> str:
        return f"draw of {self.event}"


class DrawnPlace(models.Model):
    """A number and the lobby entry that drew it: written in one go, never changed."""

    pk = models.CompositePrimaryKey("event_id", "number")
    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+", db_index=False)
    number = models.PositiveBigIntegerField()
    # No foreign key: it would lock and look up a million rows that the same statement has just read.
    entry_id = models.UUIDField(unique=True)

    def __str__(self) -> str:
        return f"number {self.number}"


class ReceiptKey(models.Model):
    """A public key that receipts were ever signed with. The private one follows from the house's secret key."""

    key_id = models.CharField(max_length=16, primary_key=True)
    public = models.BinaryField(max_length=32)
    first_used_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.key_id
