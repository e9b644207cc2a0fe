"""Serializers that describe announcements in the OpenAPI document."""

from rest_framework import serializers


class AnnouncementSerializer(serializers.Serializer):
    announcement_id = serializers.IntegerField(help_text="Stays the same through corrections.")
    version = serializers.IntegerField(help_text="Rises with every post, correction and retraction at the event.")
    text = serializers.CharField(allow_null=True, help_text="Plain text of up to 500 characters; null if retracted.")
    posted_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField(allow_null=True, help_text="When it was corrected or retracted.")


class AnnouncementsSerializer(serializers.Serializer):
    announcements = AnnouncementSerializer(many=True)
    latest = serializers.IntegerField(help_text="Send it as `since` in the next request.")
    has_older = serializers.BooleanField(help_text="Whether the history has older announcements.")
    next_poll = serializers.IntegerField(help_text="Milliseconds to wait before the next request.")


class AnnouncementHistorySerializer(serializers.Serializer):
    announcements = AnnouncementSerializer(many=True)
    next_before = serializers.IntegerField(allow_null=True, help_text="`before` of the next page; null on the last.")
