from django.apps import AppConfig


class FeedsConfig(AppConfig):
    name = "apps.kernel.feeds"
    label = "feeds"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.kernel.feeds import reconciliation

        reconciliation.register()
