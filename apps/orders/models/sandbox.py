"""The sandbox provider's books, kept in our database so that the demo needs no external service."""

from django.db import models


class SandboxCharge(models.Model):
    """A charge in the sandbox provider's books. The sandbox simulates an external service: no other table refers to its
    rows, and they are written in transactions of their own, never together with ours."""

    id = models.BigAutoField(primary_key=True)
    idempotency_key = models.CharField(max_length=120, unique=True)
    method = models.CharField(max_length=40)
    amount_minor = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=12, help_text="pending, succeeded, declined, canceled or unheard.")
    occurred_at = models.DateTimeField()
    then_status = models.CharField(max_length=12, blank=True, help_text="The status that it changes to by itself.")
    then_at = models.DateTimeField(null=True, blank=True, help_text="The time of that change.")
    return_url = models.CharField(max_length=500, blank=True, help_text="Where the buyer is redirected afterwards.")

    def __str__(self) -> str:
        return f"{self.amount_minor} {self.currency} {self.status}"


class SandboxRefund(models.Model):
    """A refund in the sandbox provider's books."""

    id = models.BigAutoField(primary_key=True)
    idempotency_key = models.CharField(max_length=120, unique=True)
    charge = models.ForeignKey(SandboxCharge, on_delete=models.CASCADE, related_name="refunds")
    amount_minor = models.PositiveBigIntegerField()
    status = models.CharField(max_length=12, default="succeeded", help_text="pending, succeeded or failed.")
    failure = models.CharField(max_length=200, blank=True)
    occurred_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.amount_minor} refunded"
