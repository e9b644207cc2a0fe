from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    name = "apps.kernel.scheduler"
    label = "scheduler"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.kernel import maintenance
        from apps.kernel.scheduler import facade, runs

        maintenance.register("schedule tasks of code", 600, facade.ensure_registered)
        maintenance.register("delete old runs of scheduled tasks", 600, runs.delete_old)
