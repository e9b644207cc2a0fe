from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "apps.accounts"
    label = "accounts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.accounts import confirmed_addresses, pending_address, personal_data, security_log, security_signals
        from apps.accounts.pages import mail
        from apps.accounts.sessions import account_sessions
        from apps.kernel import maintenance
        from apps.kernel.mail import new_domains
        from apps.kernel.outbox import facade as outbox
        from apps.kernel.outbox.topic_groups import TopicGroup

        outbox.register_handler(mail.SEND_MAIL, mail.send, together_max=mail.SENDING_MAX, group=TopicGroup.MAIL)
        new_domains.register_stranger_topic(mail.SEND_MAIL)
        security_signals.connect()
        confirmed_addresses.connect()
        pending_address.connect()
        maintenance.register("delete old entries of the security log", 3_600, security_log.delete_old)
        maintenance.register("delete ended sessions from the list of devices", 3_600, account_sessions.delete_ended)
        maintenance.register("delete leftovers of erased accounts", 3_600, personal_data.delete_leftovers)
