"""Announcements as the API says them, for its description."""

from rest_framework import serializers


class AnnouncementSerializer(serializers.Serializer):
    announcement_id = serializers.IntegerField(help_text="Stays, however often it is corrected.")
    version = serializers.IntegerField(help_text="Rises with everything that is said at the event.")
    text = serializers.CharField(allow_null=True, help_text="Plain text of up to 500 characters; null: taken back.")
    posted_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField(allow_null=True, help_text="When it was corrected or taken back.")


class AnnouncementsSerializer(serializers.Serializer):
    announcements = AnnouncementSerializer(many=True)
    latest = serializers.IntegerField(help_text="To be sent as `since` next time.")
    has_older = serializers.BooleanField(help_text="There are more than these: see the history.")
    next_poll = serializers.IntegerField(help_text="Ask again after so many milliseconds.")


class AnnouncementHistorySerializer(serializers.Serializer):
    announcements = AnnouncementSerializer(many=True)
    next_before = serializers.IntegerField(allow_null=True, help_text="`before` of the next page; null: the last.")
