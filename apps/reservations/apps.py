from django.apps import AppConfig


class ReservationsConfig(AppConfig):
    name = "apps.reservations"
    label = "reservations"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.events import facade as events
        from apps.kernel import maintenance
        from apps.kernel.http import idempotency
        from apps.queue import facade as queue
        from apps.reservations.access_codes.presale import PresaleCodes
        from apps.reservations.checks import invariants, reconciliation
        from apps.reservations.counts import search_stock, supply_report
        from apps.reservations.gate import gate_reconciliation, rebuild
        from apps.reservations.inventory import availability, setup
        from apps.reservations.lifecycle import expiry_jobs
        from apps.reservations.staff import draft_check, event_change, scheduled_stock

        events.on_publish(setup.create_inventory)
        events.on_check_draft(draft_check.check_draft)
        events.provide_change_part(event_change.ReservationChange())
        events.provide_availability(availability.free_by_event)
        queue.provide_presale_codes(PresaleCodes())
        scheduled_stock.register()
        invariants.register()
        reconciliation.register()
        gate_reconciliation.register()
        maintenance.register("reset the gates", 0.25, rebuild.reset_due)
        maintenance.register("sweep expired reservations", expiry_jobs.UNSWEPT_EVERY_SECONDS, expiry_jobs.sweep_unswept)
        maintenance.register("forget old cleanup logs", 60, expiry_jobs.delete_old_cleanup_logs)
        maintenance.register("report the supply to the waiting rooms", 1, supply_report.Reporter().report_if_due)
        maintenance.register("report the stock to the search", 1, search_stock.SearchReporter().report_if_due)
        maintenance.register("forget old answers", 60, idempotency.forget_old)
