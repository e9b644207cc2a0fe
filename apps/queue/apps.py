from django.apps import AppConfig


class QueueConfig(AppConfig):
    name = "apps.queue"
    label = "queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.events import facade as events
        from apps.queue import admitting, auditing, pacing, rooms
        from ticketing.kernel import maintenance

        events.on_publish(rooms.open_room)
        auditing.register()
        maintenance.register("expire admissions", 1, admitting.expire_admissions)
        maintenance.register("drain the rooms of what is over", 1, rooms.drain_what_is_over)
        maintenance.register("forget old rate changes", 3_600, pacing.forget_old_changes)
