"""OpenAPI schema of the messages to organizers, by webhook and by feed. `messages.py` writes their bodies."""

from rest_framework import serializers

from apps.orders.models import Order, OrganizerMessage


class MessageOrderSerializer(serializers.Serializer):
    order_id = serializers.UUIDField()
    number = serializers.CharField()
    status = serializers.ChoiceField(choices=Order.Status.choices)
    reason = serializers.CharField(allow_blank=True)
    email = serializers.EmailField()
    name = serializers.CharField()
    total_minor = serializers.IntegerField()
    refunded_minor = serializers.IntegerField(help_text="Refunded, or being refunded.")
    currency = serializers.CharField()


class MessageTicketSerializer(serializers.Serializer):
    code = serializers.CharField(help_text="The ticket's code, which admits its bearer.")
    section = serializers.CharField()
    row = serializers.CharField(allow_blank=True)
    number = serializers.CharField(allow_blank=True)
    category = serializers.CharField()
    price_minor = serializers.IntegerField()
    holder = serializers.CharField()
    valid = serializers.BooleanField()
    checked_in_at = serializers.DateTimeField(allow_null=True)


class MessageSerializer(serializers.Serializer):
    receipt_handle = serializers.UUIDField(help_text="Of this delivery; use it to delete the message.")
    message_id = serializers.UUIDField(help_text="The same in every delivery of the message.")
    kind = serializers.ChoiceField(choices=OrganizerMessage.Kind.choices)
    created_at = serializers.DateTimeField()
    event = serializers.CharField(help_text="The event's slug.")
    order = MessageOrderSerializer(help_text="The order after the change.")
    tickets = MessageTicketSerializer(many=True, help_text="The tickets that the message is about.")


class FeedSerializer(serializers.Serializer):
    messages = MessageSerializer(many=True)
