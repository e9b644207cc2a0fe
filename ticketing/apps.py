from django.apps import AppConfig


class CompositionConfig(AppConfig):
    """The house put together: every process that loads Django has the handlers and the way to wake a worker."""

    name = "ticketing"
    label = "ticketing"

    def ready(self) -> None:
        from apps.reservations import facade as reservations
        from ticketing import handlers
        from ticketing.kernel import batching, limits, metrics, traffic

        handlers.register()
        metrics.register(*batching.METRICS, *reservations.METRICS, *limits.METRICS, *traffic.METRICS)
