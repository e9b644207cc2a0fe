from django.apps import AppConfig


class QueueConfig(AppConfig):
    name = "apps.queue"
    label = "queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.accounts import facade as accounts
        from apps.events import facade as events
        from apps.kernel import maintenance
        from apps.queue import invariants
        from apps.queue.identity import guest_merge
        from apps.queue.room import admission, operations, rate_control

        # An anonymous browser does not see an entry that already belongs to the account: the session comes first.
        accounts.after_log_in(guest_merge.merge_guest_entries_of_browser)
        events.on_publish(operations.create_room)
        invariants.register()
        maintenance.register("expire admissions", 1, admission.expire_admissions)
        maintenance.register("drain rooms of ended events", 1, operations.drain_ended_rooms)
        maintenance.register("delete old rate changes", 3_600, rate_control.delete_old_changes)
