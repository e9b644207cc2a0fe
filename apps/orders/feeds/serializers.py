"""OpenAPI schema of feeds. `bodies` reads the requests."""

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.kernel.feeds import facade as feeds
from apps.kernel.http.openapi import whole_number
from apps.orders.feeds.bodies import ID_PATTERN


@extend_schema_field({"description": f"Any JSON value of at most {feeds.BODY_BYTES_MAX} bytes."})
class AnyJson(serializers.JSONField):
    """A JSON value."""


@extend_schema_field({"type": "string", "nullable": True, "minLength": 1, "maxLength": feeds.ID_LENGTH_MAX})
class MessageKey(serializers.CharField):
    """A key, or null."""


class FeedSettingsSerializer(serializers.Serializer):
    retention_seconds = serializers.IntegerField(
        required=False,
        min_value=feeds.RETENTION_SECONDS_MIN,
        max_value=feeds.RETENTION_SECONDS_MAX,
        default=feeds.RETENTION_SECONDS_DEFAULT,
        help_text="Messages are deleted this long after they were sent.",
    )
    receives_max = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=feeds.RECEIVES_MAX_MAX,
        default=feeds.RECEIVES_MAX_DEFAULT,
        help_text="A message that was received so often and not deleted becomes a dead letter.",
    )


class FeedStateSerializer(serializers.Serializer):
    name = serializers.CharField()
    retention_seconds = serializers.IntegerField()
    receives_max = serializers.IntegerField()
    messages = serializers.IntegerField(help_text="Messages that are not deleted, with dead letters.")
    bytes = serializers.IntegerField(help_text="The size of their bodies.")
    dead_letters = serializers.IntegerField()
    oldest_due_seconds = serializers.FloatField(
        help_text="For how long the oldest message that can be received has been waiting; 0 without one."
    )
    created_at = serializers.DateTimeField()


class FeedListSerializer(serializers.Serializer):
    feeds = FeedStateSerializer(many=True)


class NewMessageSerializer(serializers.Serializer):
    id = serializers.RegexField(
        ID_PATTERN,
        max_length=feeds.ID_LENGTH_MAX,
        help_text="Unique in the feed. A repetition with the same key and body sends nothing.",
    )
    key = MessageKey(required=False, allow_null=True, help_text="Messages of one key are received in their order.")
    body = AnyJson(allow_null=True)


class SendSerializer(serializers.Serializer):
    messages = serializers.ListField(child=NewMessageSerializer(), min_length=1, max_length=feeds.LIST_MAX)


class SentMessageSerializer(serializers.Serializer):
    id = serializers.CharField()
    sequence = serializers.IntegerField(help_text="The message's position in the feed.")
    is_new = serializers.BooleanField(help_text="false: an earlier call has sent it.")


class SentSerializer(serializers.Serializer):
    messages = SentMessageSerializer(many=True)


class FeedMessageSerializer(serializers.Serializer):
    id = serializers.CharField()
    sequence = serializers.IntegerField()
    key = serializers.CharField(allow_null=True)
    body = AnyJson(allow_null=True)
    sent_at = serializers.DateTimeField()
    receives = serializers.IntegerField(help_text="How often it has been received, this time included.")
    receipt_handle = serializers.CharField(help_text="Of this receive; use it to delete or extend the message.")
    visible_at = serializers.DateTimeField(help_text="Until then it is hidden from other receivers.")


class FeedMessagesSerializer(serializers.Serializer):
    messages = FeedMessageSerializer(many=True)


@extend_schema_field(whole_number(0, feeds.VISIBILITY_SECONDS_MAX))
class VisibilitySeconds(serializers.IntegerField):
    """Seconds from now."""


class VisibilitySerializer(serializers.Serializer):
    visibility_seconds = VisibilitySeconds(help_text="0: it can be received at once.")


class VisibleAtSerializer(serializers.Serializer):
    visible_at = serializers.DateTimeField()


class HandlesSerializer(serializers.Serializer):
    receipt_handles = serializers.ListField(
        child=serializers.CharField(), min_length=1, max_length=feeds.DELETED_MAX, help_text="Of received messages."
    )


class DeletionSerializer(serializers.Serializer):
    receipt_handle = serializers.CharField()
    outcome = serializers.ChoiceField(
        choices=["deleted", "receipt-outdated", "not-found"],
        help_text="`deleted`, now or before; otherwise why it was not deleted by this handle.",
    )


class DeletionsSerializer(serializers.Serializer):
    messages = DeletionSerializer(many=True, help_text="In the order of the handles.")


class DeadLetterSerializer(serializers.Serializer):
    id = serializers.CharField()
    sequence = serializers.IntegerField()
    key = serializers.CharField(allow_null=True)
    body = AnyJson(allow_null=True)
    sent_at = serializers.DateTimeField()
    receives = serializers.IntegerField()
    dead_at = serializers.DateTimeField()


class DeadLettersSerializer(serializers.Serializer):
    messages = DeadLetterSerializer(many=True)


class RedrivenSerializer(serializers.Serializer):
    redriven = serializers.IntegerField(help_text=f"At most {feeds.REDRIVEN_MAX}; call again for more.")
