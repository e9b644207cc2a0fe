from django.apps import AppConfig


class EventsConfig(AppConfig):
    name = "apps.events"
    label = "events"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.accounts import facade as accounts
        from apps.events.announcements import archive, redis_cache
        from apps.events.organizers import staff_links
        from apps.events.search import index_writer, reconciliation
        from apps.kernel import maintenance

        accounts.provide_staff_links(staff_links.staff_links)
        maintenance.register("refresh cached announcements", redis_cache.REFRESH_SECONDS, redis_cache.refresh)
        maintenance.register(
            "index changed events for the search", index_writer.INTERVAL_SECONDS, index_writer.index_changes
        )
        reconciliation.register()
        maintenance.register("archive old announcements", archive.INTERVAL_SECONDS, archive.archive_old)
