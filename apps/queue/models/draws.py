"""The draw of a lobby, and the keys that sign receipts."""

from django.db import models


class Draw(models.Model):
    """The draw of one room with a lobby: the commitment made before the lobby opens, and the result. The secret is
    published only when it is revealed; until then the commitment binds the operator to it."""

    event = models.OneToOneField("events.Event", on_delete=models.CASCADE, primary_key=True, related_name="draw")
    statement = models.TextField(help_text="The committed canonical JSON: rule, beacon, deadline, fallback.")
    commitment = models.BinaryField(max_length=32, help_text="SHA-256 of the statement.")
    committed_at = models.DateTimeField()
    secret = models.BinaryField(max_length=32)
    reveal_by = models.DateTimeField(help_text="After this time the secret is revealed without a beacon value.")
    frozen_at = models.DateTimeField(
        null=True, blank=True, help_text="The opening, after which no entry joins the lobby."
    )
    digest = models.BinaryField(
        max_length=32, null=True, blank=True, help_text="The digest of the sorted leaves of all entrants."
    )
    digest_at = models.DateTimeField(null=True, blank=True)
    beacon_value = models.BinaryField(null=True, blank=True)
    beacon_signature = models.BinaryField(
        max_length=96, null=True, blank=True, help_text="The round's BLS signature; the value is its SHA-256."
    )
    beacon_previous_signature = models.BinaryField(
        max_length=96, null=True, blank=True, help_text="The previous round's signature, in a chained scheme."
    )
    revealed_at = models.DateTimeField(null=True, blank=True)
    seed = models.BinaryField(max_length=32, null=True, blank=True)
    is_operator_proof = models.BooleanField(null=True, help_text="Whether the seed contains a beacon value.")
    drawn_at = models.DateTimeField(null=True, blank=True, help_text="All numbers have been drawn.")
    numbered_at = models.DateTimeField(null=True, blank=True, help_text="All entries have their numbers.")

    def __str__(self) -> str:
        return f"draw of {self.event}"


class DrawnPlace(models.Model):
    """A number and the lobby entry that drew it. Written by one statement, never changed."""

    pk = models.CompositePrimaryKey("event_id", "number")
    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+", db_index=False)
    number = models.PositiveBigIntegerField()
    # Not a foreign key, which would lock and look up a million rows that the same statement has just read.
    entry_id = models.UUIDField(unique=True)

    def __str__(self) -> str:
        return f"number {self.number}"


class ReceiptKey(models.Model):
    """A public key that has signed receipts. The private key is derived from SECRET_KEY."""

    key_id = models.CharField(max_length=16, primary_key=True)
    public = models.BinaryField(max_length=32)
    first_used_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.key_id
