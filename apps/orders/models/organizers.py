"""Messages to organizers about orders, the subscribers of the messages, and the deliveries."""

import uuid

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

from apps.kernel import safe_http
from apps.kernel.feeds.models import NAME_LENGTH_MAX, NAME_PATTERN
from apps.orders.models.orders import Order


class Audience(models.Model):
    """A subscriber to messages about one event, all events of an organizer, or all events of the site, of some kinds or
    all kinds."""

    name = models.CharField(max_length=120, help_text="For staff: owner and purpose.")
    organizer = models.ForeignKey(
        "events.Organizer", on_delete=models.PROTECT, null=True, blank=True, related_name="+",
        help_text="All events of this organizer. Choose an organizer or an event; neither: all events of the site.",
    )  # fmt: skip
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    kinds = models.JSONField(default=list, blank=True, help_text="Empty: all.")
    created_at = models.DateTimeField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name

    def is_subscribed_to(self, kind: str) -> bool:
        return not self.kinds or kind in self.kinds


class WebhookEndpoint(Audience):
    """A URL that messages are posted to, signed with its secret."""

    url = models.CharField(max_length=safe_http.URL_LENGTH_MAX)
    secret = models.CharField(max_length=80, help_text="The signing key, shared with the receiver.")
    is_active = models.BooleanField(default=True, help_text="Nothing is sent to an inactive endpoint.")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=~Q(secret=""), name="webhook_endpoint_has_secret"),
            models.CheckConstraint(condition=Q(event=None) | Q(organizer=None), name="webhook_endpoint_one_subject"),
        ]

    @property
    def owner_id(self) -> int | None:
        """The id of the organizer that the endpoint belongs to, by its event or directly; None: the whole site."""
        return self.organizer_id if self.event is None else self.event.organizer_id


def _default_scopes() -> list[str]:
    return [str(FeedKey.Scope.ORDERS)]


class FeedKey(Audience):
    """A bearer key for an organizer's programs: for messages about orders, of which each key has a queue of its own,
    and for the organizer's feeds."""

    class Scope(models.TextChoices):
        ORDERS = "orders:receive", "orders:receive – messages about orders"
        SEND = "feeds:send", "feeds:send – send to the organizer's feeds"
        RECEIVE = "feeds:receive", "feeds:receive – receive from the organizer's feeds"
        MANAGE_FEEDS = "feeds:manage", "feeds:manage – create, list and delete feeds; dead letters"

    digest = models.CharField(max_length=64, help_text="SHA-256 of the key. The key itself is not stored.")
    beginning = models.CharField(max_length=12, help_text="The first characters of the key, to recognize it.")
    scopes = models.JSONField(default=_default_scopes, help_text="What the key may do.")
    feed = models.CharField(
        max_length=NAME_LENGTH_MAX,
        blank=True,
        validators=[RegexValidator(NAME_PATTERN, "Small letters, digits and hyphens only, as in the feed's name.")],
        help_text="The only feed that the key is for; empty: all of the organizer.",
    )
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["digest"], name="feed_key_once"),
            models.CheckConstraint(condition=Q(event=None) | Q(organizer=None), name="feed_key_one_subject"),
            # Feeds belong to an organizer, so other keys have the scope of orders and no other.
            models.CheckConstraint(
                condition=Q(organizer__isnull=False) | Q(scopes=["orders:receive"]), name="feed_key_scopes_of_organizer"
            ),
            models.CheckConstraint(condition=~Q(scopes=[]), name="feed_key_has_scope"),
        ]

    def has_scope(self, scope: str) -> bool:
        return scope in self.scopes

    def is_for_feed(self, name: str) -> bool:
        return self.feed in ("", name)


class OrganizerMessage(models.Model):
    """A message to organizers about a change of an order."""

    class Kind(models.TextChoices):
        ORDER_CONFIRMED = "order.confirmed", "order.confirmed"
        ORDER_CANCELED = "order.canceled", "order.canceled"
        ORDER_PARTLY_REFUNDED = "order.partly_refunded", "order.partly_refunded"
        ORDER_REFUNDED = "order.refunded", "order.refunded"
        TICKET_REISSUED = "ticket.reissued", "ticket.reissued"
        TICKET_CHECKED_IN = "ticket.checked_in", "ticket.checked_in"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    kind = models.CharField(max_length=40, choices=Kind.choices)
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="+", db_index=False)
    body = models.JSONField()
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class WebhookDelivery(models.Model):
    """The delivery of a message to an endpoint."""

    class Status(models.TextChoices):
        PENDING = "pending", "pending"  # → delivered, given_up
        DELIVERED = "delivered", "delivered"  # → pending: replayed
        GIVEN_UP = "given_up", "given up"  # → pending: replayed

    id = models.BigAutoField(primary_key=True)
    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.PROTECT, related_name="+")
    message = models.ForeignKey(OrganizerMessage, on_delete=models.PROTECT, related_name="+", db_index=False)
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    answer_status = models.PositiveIntegerField(null=True, blank=True, help_text="HTTP status of the latest attempt.")
    answer = models.TextField(blank=True, help_text="The beginning of the latest response, or why there was none.")
    attempted_at = models.DateTimeField(null=True, blank=True)
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "webhook deliveries"
        constraints = [
            models.UniqueConstraint(fields=["message", "endpoint"], name="webhook_delivery_once"),
            models.CheckConstraint(
                condition=~Q(status="delivered") | Q(delivered_at__isnull=False), name="webhook_delivery_has_time"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.message_id} {self.status}"


class FeedMessage(models.Model):
    """A message in a feed key's queue."""

    id = models.BigAutoField(primary_key=True)
    feed_key = models.ForeignKey(FeedKey, on_delete=models.PROTECT, related_name="+", db_index=False)
    message = models.ForeignKey(OrganizerMessage, on_delete=models.PROTECT, related_name="+", db_index=False)
    visible_at = models.DateTimeField(help_text="When it can be received next, unless it is deleted.")
    receipt = models.UUIDField(null=True, blank=True, help_text="The latest receipt handle.")
    attempts = models.PositiveIntegerField(default=0)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["message", "feed_key"], name="feed_message_once"),
            models.UniqueConstraint(fields=["receipt"], name="feed_message_receipt_once"),
        ]
        indexes = [
            models.Index(
                fields=["feed_key", "visible_at", "id"], condition=Q(deleted_at__isnull=True), name="feed_message_due"
            )
        ]

    def __str__(self) -> str:
        return f"{self.message_id}"
