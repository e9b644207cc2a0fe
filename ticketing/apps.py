from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate, pre_migrate


class CompositionConfig(AppConfig):
    """The house put together: every process that loads Django has the handlers and the way to wake a worker."""

    name = "ticketing"
    label = "ticketing"

    def ready(self) -> None:
        from apps.reservations import facade as reservations
        from ticketing import handlers, session_limits
        from ticketing.kernel import batching, limits, metrics, traffic
        from ticketing.kernel.lane import turnstile
        from ticketing.kernel.live import hub
        from ticketing.kernel.outbox import figures

        handlers.register()
        metrics.register(
            *batching.METRICS,
            *reservations.METRICS,
            *limits.METRICS,
            *traffic.METRICS,
            *turnstile.METRICS,
            *figures.METRICS,
            *hub.METRICS,
        )
        # Django tells only apps that have models.
        kernel = apps.get_app_config("kernel")
        pre_migrate.connect(session_limits.lift_while_migrating, sender=kernel)
        post_migrate.connect(session_limits.apply_after_migrating, sender=kernel)
