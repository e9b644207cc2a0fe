from django.apps import AppConfig


class KernelConfig(AppConfig):
    name = "apps.kernel"
    label = "kernel"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.kernel import maintenance
        from apps.kernel.observability import health_signals

        maintenance.register("forget old health signals", 60, health_signals.forget_old)
