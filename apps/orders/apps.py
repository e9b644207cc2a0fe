from importlib import import_module

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    name = "apps.orders"
    label = "orders"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.accounts import facade as accounts
        from apps.events import facade as events
        from apps.kernel import maintenance
        from apps.kernel.mail import new_domains
        from apps.orders import selectors, topics
        from apps.orders.cancellation import order_cancellation, oversell
        from apps.orders.checkout import guest_orders
        from apps.orders.checks import invariants, reconciliation
        from apps.orders.order_pages import live
        from apps.orders.payments import draft_check
        from apps.orders.privacy import account_data
        from apps.orders.provider_sync import daily_comparison, status_inquiries
        from apps.orders.returns import policies, refund_terms
        from apps.orders.schedule import event_change
        from apps.orders.scheduled_tasks import kinds
        from apps.orders.webhooks import event_access, feed
        from apps.reservations import facade as reservations

        import_module("apps.orders.payments.providers.checks")

        accounts.before_log_in(guest_orders.attach_orders_of_browser)
        for topic in (
            topics.SEND_FAILURE_NOTICE,
            topics.SEND_CONFIRMATION,
            topics.SEND_ORDER_LIST,
            topics.SEND_TRANSFER,
            topics.SEND_FREE_TICKETS,
            topics.SEND_TICKETS_LARGE,
            topics.SEND_TICKETS_AGAIN,
            topics.SEND_RETURN_NOTICE,
            # Strangers can place the orders that these are about.
            topics.SEND_CANCELLATION_NOTICE,
            topics.SEND_SCHEDULE_NOTICE,
            topics.SEND_REMINDER,
        ):
            new_domains.register_stranger_topic(topic)
        events.provide_return_policies(policies.EventReturnPolicies())
        events.on_check_draft(draft_check.check_draft)
        events.on_organizer_change(event_access.end_access)
        events.provide_change_part(event_change.OrderChange())
        events.provide_refund_terms(refund_terms.describe_refunds)
        invariants.register()
        kinds.register()
        live.connect_signals()
        reconciliation.register()
        reservations.provide_compensation_hooks(oversell.OrderSales())
        accounts.provide_personal_data(account_data.AccountData())
        reservations.provide_order_names(selectors.numbers_by_reservation)
        reservations.provide_received_tickets(selectors.count_received_tickets)
        maintenance.register("fail lapsed orders", 2, order_cancellation.fail_expired_orders)
        maintenance.register("ask about unsettled money", 10, status_inquiries.schedule_inquiries)
        maintenance.register("compare with providers", 60, daily_comparison.schedule_comparisons)
        maintenance.register("forget old messages to organizers", 60, feed.delete_old_messages)
