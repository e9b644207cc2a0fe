from importlib import import_module

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    name = "apps.orders"
    label = "orders"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.orders import auditing, canceling, compensating, selectors
        from apps.reservations import facade as reservations
        from ticketing.kernel import maintenance

        import_module("apps.orders.providers.checks")

        auditing.register()
        reservations.provide_sale(compensating.Orders())
        reservations.provide_order_names(selectors.numbers_by_reservation)
        maintenance.register("fail lapsed orders", 2, canceling.fail_lapsed)
