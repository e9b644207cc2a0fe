from django.apps import AppConfig


class EventsConfig(AppConfig):
    name = "apps.events"
    label = "events"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.events.announcements import archiving, hot
        from ticketing.kernel import maintenance

        maintenance.register("refresh the announcements at hand", hot.REFRESH_SECONDS, hot.refresh)
        maintenance.register("archive old announcements", archiving.EVERY_SECONDS, archiving.archive_old)
