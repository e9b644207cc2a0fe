from django.apps import AppConfig


class QueueConfig(AppConfig):
    name = "apps.queue"
    label = "queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.accounts import facade as accounts
        from apps.events import facade as events
        from apps.kernel import maintenance
        from apps.kernel.mail import new_domains
        from apps.kernel.outbox import facade as outbox
        from apps.kernel.outbox.topic_groups import TopicGroup
        from apps.queue import invariants
        from apps.queue.identity import guest_merge
        from apps.queue.lobby import sign_up_mail, sign_up_reminders
        from apps.queue.room import admission, draft_check, event_change, operations, rate_control, room_interest

        # An anonymous browser does not see an entry that already belongs to the account: the session comes first.
        accounts.after_log_in(guest_merge.merge_guest_entries_of_browser)
        events.on_publish(operations.create_room)
        events.on_check_draft(draft_check.check_draft)
        events.provide_change_part(event_change.RoomChange())
        events.provide_room_interest(room_interest.read_room_interest)
        outbox.register_handler(
            sign_up_mail.SEND_MAIL, sign_up_mail.send, together_max=sign_up_mail.SENDING_MAX, group=TopicGroup.MAIL
        )
        outbox.register_handler(
            sign_up_reminders.SEND_REMINDER,
            sign_up_reminders.send,
            together_max=sign_up_reminders.SENDING_MAX,
            group=TopicGroup.MAIL,
        )
        for topic in (sign_up_mail.SEND_MAIL, sign_up_reminders.SEND_REMINDER):
            new_domains.register_stranger_topic(topic)
        invariants.register()
        maintenance.register("expire admissions", 1, admission.expire_admissions)
        maintenance.register("drain rooms of ended events", 1, operations.drain_ended_rooms)
        maintenance.register("mail people who signed up for a draw", 2, sign_up_mail.schedule_mails)
        maintenance.register("remind people who signed up for a draw", 60, sign_up_reminders.schedule_reminders)
        maintenance.register("delete old rate changes", 3_600, rate_control.delete_old_changes)
