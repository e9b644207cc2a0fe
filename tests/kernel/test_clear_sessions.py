"""Expired sessions are deleted every day."""

from datetime import timedelta

from django.conf import settings
from django.contrib.sessions.models import Session

from apps.kernel import clock, tasks


def test_the_daily_task_deletes_expired_sessions_only(db: None) -> None:
    for key, days in (("expired", -1), ("live", 1)):
        Session.objects.create(session_key=key, session_data="", expire_date=clock.now() + timedelta(days=days))
    tasks.clear_sessions()
    assert list(Session.objects.values_list("session_key", flat=True)) == ["live"]
    (entry,) = [each for each in settings.CELERY_BEAT_SCHEDULE.values() if each["task"] == tasks.clear_sessions.name]
    assert entry["schedule"] == timedelta(days=1)
