from django.apps import AppConfig


class EventsConfig(AppConfig):
    name = "apps.events"
    label = "events"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.accounts import facade as accounts
        from apps.events.announcements import archive, redis_cache
        from apps.events.interest import counts, recount, retention, trend
        from apps.events.organizers import staff_links
        from apps.events.recents import history, redis_copy
        from apps.events.scheduled_tasks import kinds
        from apps.events.search import index_writer, reconciliation
        from apps.kernel import maintenance
        from apps.kernel.outbox import facade as outbox

        kinds.register()
        accounts.provide_staff_links(staff_links.staff_links)
        maintenance.register("refresh cached announcements", redis_cache.REFRESH_SECONDS, redis_cache.refresh)
        maintenance.register(
            "index changed events for the search", index_writer.INTERVAL_SECONDS, index_writer.index_changes
        )
        reconciliation.register()
        accounts.after_log_in(history.merge_at_log_in)
        outbox.register_handler(history.CHANGED, redis_copy.follow, together_max=4)
        maintenance.register("count views", counts.INTERVAL_SECONDS, counts.count_views)
        maintenance.register("delete old views", retention.INTERVAL_SECONDS, retention.tidy)
        maintenance.register("update trends of views", trend.INTERVAL_SECONDS, trend.update_trends)
        recount.register()
        maintenance.register("archive old announcements", archive.INTERVAL_SECONDS, archive.archive_old)
