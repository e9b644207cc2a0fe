"""The schedule of Celery beat: housekeeping that may be skipped or repeated (docs/adr, number 36)."""

from datetime import timedelta

CELERY_BEAT_SCHEDULE = {
    "sweep expired reservations": {
        "task": "reservations.sweep",
        "schedule": timedelta(seconds=1),
        # While no worker is free, tasks expire instead of piling up. The next one does their work.
        "options": {"expire_seconds": 10},
    },
    "reset the gates": {
        "task": "reservations.reset_gates",
        "schedule": timedelta(seconds=1),
        "options": {"expire_seconds": 5},
    },
    "ask about unsettled money": {
        "task": "orders.ask_about_money",
        "schedule": timedelta(seconds=10),
        "options": {"expire_seconds": 10},
    },
    "compare with providers": {
        "task": "orders.compare_days",
        "schedule": timedelta(minutes=1),
        "options": {"expire_seconds": 60},
    },
    "erase old personal data": {
        "task": "orders.apply_retention",
        "schedule": timedelta(hours=1),
        "options": {"expire_seconds": 600},
    },
    "audit and reconcile": {
        "task": "kernel.check",
        "schedule": timedelta(minutes=1),
        "options": {"expire_seconds": 60},
    },
    "clear feeds": {
        "task": "feeds.collect",
        "schedule": timedelta(minutes=1),
        "options": {"expire_seconds": 60},
    },
    "clear sessions": {
        "task": "kernel.clear_sessions",
        "schedule": timedelta(days=1),
        "options": {"expire_seconds": 3_600},
    },
}
