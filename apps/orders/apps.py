from importlib import import_module

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    name = "apps.orders"
    label = "orders"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.orders import (
            auditing,
            canceling,
            comparing,
            compensating,
            reconciling,
            selectors,
            unsettled,
            watching,
        )
        from apps.orders.organizers import feed
        from apps.reservations import facade as reservations
        from ticketing.kernel import maintenance

        import_module("apps.orders.providers.checks")

        auditing.register()
        watching.connect()
        reconciling.register()
        reservations.provide_sale(compensating.Orders())
        reservations.provide_order_names(selectors.numbers_by_reservation)
        maintenance.register("fail lapsed orders", 2, canceling.fail_lapsed)
        maintenance.register("ask about unsettled money", 10, unsettled.ask_due)
        maintenance.register("compare with providers", 60, comparing.ask_due)
        maintenance.register("forget old messages to organizers", 60, feed.forget_old)
