from django.apps import AppConfig


class KernelConfig(AppConfig):
    name = "apps.kernel"

    def ready(self) -> None:
        from apps.kernel import maintenance
        from apps.kernel.observability import health_signals

        maintenance.register("forget old health signals", 60, health_signals.forget_old)
