"""The response of the header's call, for the OpenAPI document."""

from rest_framework import serializers


class HeaderAccount(serializers.Serializer):
    name = serializers.CharField()
    csrf_token = serializers.CharField(help_text="For the form that logs out.")


class HeaderMessage(serializers.Serializer):
    level = serializers.CharField(help_text="info, success, warning or error.")
    text = serializers.CharField()


class HeaderHold(serializers.Serializer):
    reservation_id = serializers.UUIDField()
    event = serializers.SlugField()
    event_name = serializers.CharField()
    status = serializers.ChoiceField(choices=["pending_payment", "paying", "expired"])
    count = serializers.IntegerField()
    noun = serializers.ChoiceField(choices=["seats", "tickets"])
    deadline = serializers.DateTimeField()
    url = serializers.CharField()
    checkout_url = serializers.CharField()


class StaffLink(serializers.Serializer):
    label = serializers.CharField()  # type: ignore[assignment] # The contract's name hides an attribute of Serializer.
    url = serializers.CharField()


class Header(serializers.Serializer):
    now = serializers.DateTimeField(help_text="The server's time.")
    account = HeaderAccount(allow_null=True)
    messages = HeaderMessage(many=True)
    holds = HeaderHold(many=True)
    staff_links = StaffLink(many=True)
