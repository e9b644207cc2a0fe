from django.apps import AppConfig


class OrdersConfig(AppConfig):
    name = "apps.orders"
    label = "orders"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.orders import auditing, canceling
        from ticketing.kernel import maintenance

        auditing.register()
        maintenance.register("fail lapsed orders", 2, canceling.fail_lapsed)
