from django.apps import AppConfig


class KernelConfig(AppConfig):
    name = "ticketing.kernel"
    label = "kernel"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ticketing.kernel import (
            maintenance,
            signing,  # noqa: F401 - registers its check
            vitals,
        )

        maintenance.register("forget old vital signs", 60, vitals.forget_old)
