"""A message as organizers get it, by webhook and by feed. These describe; `messages` writes."""

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
    refunded_minor = serializers.IntegerField(help_text="Given back, or on its way back.")
    currency = serializers.CharField()


class MessageTicketSerializer(serializers.Serializer):
    code = serializers.CharField(help_text="Opens the door for whoever has it.")
    section = serializers.CharField()
    row = serializers.CharField(allow_blank=True)
    number = serializers.CharField(allow_blank=True)
    category = serializers.CharField()
    price_minor = serializers.IntegerField()
    holder = serializers.CharField()
    valid = serializers.BooleanField()
    checked_in_at = serializers.DateTimeField(allow_null=True)


class MessageSerializer(serializers.Serializer):
    receipt_handle = serializers.UUIDField(help_text="Of this giving out; to delete it by.")
    message_id = serializers.UUIDField(help_text="The same however often it is given out.")
    kind = serializers.ChoiceField(choices=OrganizerMessage.Kind.choices)
    created_at = serializers.DateTimeField()
    event = serializers.CharField(help_text="Its slug.")
    order = MessageOrderSerializer(help_text="As it was then.")
    tickets = MessageTicketSerializer(many=True, help_text="Those it speaks of.")


class FeedSerializer(serializers.Serializer):
    messages = MessageSerializer(many=True)
