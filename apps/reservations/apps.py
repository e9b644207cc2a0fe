from django.apps import AppConfig


class ReservationsConfig(AppConfig):
    name = "apps.reservations"
    label = "reservations"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from apps.events import facade as events
        from apps.reservations import aftermath, availability, deadlines, inventory, nets, supplying
        from apps.reservations.checks import auditing, reconciling
        from apps.reservations.gates import comparing, gate, resetting
        from ticketing.kernel import idempotency, maintenance

        events.on_publish(inventory.materialise)
        events.provide_availability(availability.free_by_event)
        auditing.register()
        reconciling.register()
        comparing.register()
        aftermath.on_held(gate.tell_held)
        aftermath.on_ended(gate.tell_ended)
        aftermath.on_moved(gate.tell_moved)
        deadlines.register()
        maintenance.register("reset the gates", 0.25, resetting.reset_due)
        maintenance.register("sweep expired reservations", nets.UNSWEPT_EVERY_SECONDS, nets.sweep_unswept)
        maintenance.register("forget old cleanup logs", 60, nets.forget_cleanup_logs)
        maintenance.register("report the supply to the waiting rooms", 1, supplying.Reporter().report_if_due)
        maintenance.register("forget old answers", 60, idempotency.forget_old_now)
