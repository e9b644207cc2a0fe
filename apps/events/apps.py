from django.apps import AppConfig


class EventsConfig(AppConfig):
    name = "apps.events"
    label = "events"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.events.announcements import archive, redis_cache
        from apps.kernel import maintenance

        maintenance.register("refresh cached announcements", redis_cache.REFRESH_SECONDS, redis_cache.refresh)
        maintenance.register("archive old announcements", archive.INTERVAL_SECONDS, archive.archive_old)
