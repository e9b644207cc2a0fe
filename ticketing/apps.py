from django.apps import AppConfig


class CompositionConfig(AppConfig):
    """The house put together: every process that loads Django has the handlers and the way to wake a worker."""

    name = "ticketing"
    label = "ticketing"

    def ready(self) -> None:
        from ticketing import handlers

        handlers.register()
