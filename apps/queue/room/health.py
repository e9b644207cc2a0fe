"""The system's health as input of the admission rate: four health signals, each with its limit.

Two are measured by apps above this one and reported through the kernel; two are read from PostgreSQL on demand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from apps.kernel import rate_limits
from apps.kernel.db import transactions
from apps.kernel.observability import health_signals
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.topic_groups import TopicGroup
from apps.kernel.proof_of_work.arrivals import wide_network_of

STATEMENT_MS = 500
"""Statement timeout, so that a busy database does not delay the gatekeeper."""
HEADROOM_SHARE = 0.8
"""Between this share of a limit and the limit itself, the rate is neither lowered nor raised."""


def _percentile_95_without_worst(values: Sequence[float]) -> float:
    return health_signals.percentile_95(sorted(values)[:-1] or values)


hold_seconds = health_signals.HealthSignal("hold_seconds", _percentile_95_without_worst, window_seconds=5)
"""Duration of holds, refusals included (`observe_hold`). The short window soon excludes slow holds from before a cut of
the rate."""
payment_faults = health_signals.HealthSignal("payment_faults", health_signals.mean)
"""1 for a charge without a usable response of the provider, 0 otherwise. A decline is a response."""


def observe_hold(seconds: float, event_id: int, address: str) -> None:
    """Measure a hold of a client with this address. Holds count for the room of their event only, those of a network
    once, and the network with the worst ones does not count: otherwise one client, whose many holds of the same seats
    wait for each other, lowers the rate of all rooms."""
    hold_seconds.observe(seconds, wide_network_of(rate_limits.subject(address)), str(event_id))


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the signals, and the requirements of a valid measurement."""

    hold_seconds_max: float
    payment_fault_share_max: float
    worker_lag_seconds_max: float
    lock_waits_max: int
    lock_wait_ms: int
    measurements_min: int
    signal_age_seconds_max: float


@dataclass(frozen=True, slots=True)
class Health:
    """The current measurements; None: not measured recently."""

    hold_seconds: float | None = None
    """Of the event whose room is assessed."""
    payment_fault_share: float | None = None
    worker_lag_seconds: float | None = None
    lock_waits: int | None = None
    holds_of_events: Mapping[int, float] = field(default_factory=dict)

    def of_event(self, event_id: int) -> "Health":
        """Return the health as it counts for this event's room."""
        return replace(self, hold_seconds=self.holds_of_events.get(event_id))


@dataclass(frozen=True, slots=True)
class HealthAssessment:
    """The exceeded limits as texts, whether there is headroom for a higher rate, and all measurements as a text."""

    complaints: tuple[str, ...]
    is_calm: bool
    words: str


def limits() -> Limits:
    return Limits(
        hold_seconds_max=settings.PACE_HOLD_SECONDS_MAX,
        payment_fault_share_max=settings.PACE_PAYMENT_FAULT_SHARE_MAX,
        worker_lag_seconds_max=settings.PACE_WORKER_LAG_SECONDS_MAX,
        lock_waits_max=settings.PACE_LOCK_WAITS_MAX,
        lock_wait_ms=settings.PACE_LOCK_WAIT_MS,
        measurements_min=settings.PACE_MEASUREMENTS_MIN,
        signal_age_seconds_max=settings.PACE_SIGNAL_AGE_SECONDS_MAX,
    )


def read(limits: Limits) -> Health:
    """Read the current health, in one short transaction of its own."""
    with transactions.write(statement_ms=STATEMENT_MS):
        reported = health_signals.latest(
            max_age_seconds=limits.signal_age_seconds_max, count_min=limits.measurements_min
        )
        faults, prefix = reported.get(payment_faults.name), f"{hold_seconds.name} "
        holds = {
            int(name.removeprefix(prefix)): reading.value
            for name, reading in reported.items()
            if name.startswith(prefix)
        }
        return Health(
            holds_of_events=holds,
            payment_fault_share=faults.value if faults else None,
            # Not of webhooks, whose endpoint may be down, nor of the refunds of a canceled event.
            worker_lag_seconds=outbox.oldest_due_seconds([TopicGroup.SALES], only_lists=True) or 0.0,
            lock_waits=health_signals.count_lock_waits(longer_than_ms=limits.lock_wait_ms),
        )


def assess_health(health: Health, limits: Limits) -> HealthAssessment:
    """Compare the measurements with their limits. A signal that was not measured exceeds no limit."""
    found = (
        ("holds", health.hold_seconds, limits.hold_seconds_max, _seconds, "holds take {} at the 95th percentile"),
        (
            "charges",
            health.payment_fault_share,
            limits.payment_fault_share_max,
            _share,
            "{} of the charges failed",
        ),
        ("messages", health.worker_lag_seconds, limits.worker_lag_seconds_max, _seconds, "messages wait {}"),
        ("locks", health.lock_waits, limits.lock_waits_max, str, "{} sessions wait for locks"),
    )
    complaints, states, is_calm = [], [], True
    for name, value, most, shown, text in found:
        if value is None:
            states.append(f"{name} not measured")
            continue
        state = text.format(shown(value))
        states.append(state)
        if value > most:
            complaints.append(f"{state}, more than {shown(most)}")
        is_calm = is_calm and value <= most * HEADROOM_SHARE
    return HealthAssessment(tuple(complaints), is_calm, ", ".join(states))


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds:.0f} s"


def _share(share: float) -> str:
    return f"{share * 100:.3g} %"


@register()
def check_limits(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    """Check the settings of rate control against each other."""
    wrong = [
        (settings.PACE_HOLD_SECONDS_MAX <= 0, "PACE_HOLD_SECONDS_MAX must be above 0"),
        (
            settings.PACE_HOLD_SECONDS_MAX * 1_000 >= settings.DATABASE_STATEMENT_TIMEOUT_MS,
            "PACE_HOLD_SECONDS_MAX must be below DATABASE_STATEMENT_TIMEOUT_MS: no hold takes longer",
        ),
        (
            not 0 < settings.PACE_PAYMENT_FAULT_SHARE_MAX < 1,
            "PACE_PAYMENT_FAULT_SHARE_MAX must be above 0 and below 1: a share",
        ),
        (settings.PACE_WORKER_LAG_SECONDS_MAX <= 0, "PACE_WORKER_LAG_SECONDS_MAX must be above 0"),
        (settings.PACE_LOCK_WAITS_MAX < 1, "PACE_LOCK_WAITS_MAX must be at least 1"),
        (
            not 0 < settings.PACE_LOCK_WAIT_MS < settings.DATABASE_LOCK_TIMEOUT_MS,
            "PACE_LOCK_WAIT_MS must be above 0 and below DATABASE_LOCK_TIMEOUT_MS: no lock wait is longer",
        ),
        (
            not 1 <= settings.PACE_MEASUREMENTS_MIN <= health_signals.WINDOW_MAX,
            f"PACE_MEASUREMENTS_MIN must be between 1 and {health_signals.WINDOW_MAX}: no process keeps more",
        ),
        (
            settings.PACE_SIGNAL_AGE_SECONDS_MAX < 2 * health_signals.INTERVAL_SECONDS,
            f"PACE_SIGNAL_AGE_SECONDS_MAX must be at least {2 * health_signals.INTERVAL_SECONDS:g}: two reports",
        ),
        (
            settings.PACE_SIGNAL_AGE_SECONDS_MAX > health_signals.KEPT_SECONDS,
            f"PACE_SIGNAL_AGE_SECONDS_MAX must be at most {health_signals.KEPT_SECONDS}: older rows are removed",
        ),
        (
            settings.PACE_STEP_SECONDS < health_signals.INTERVAL_SECONDS,
            f"PACE_STEP_SECONDS must be at least {health_signals.INTERVAL_SECONDS:g}: the signals' interval",
        ),
        (not 0 < settings.PACE_UP_SHARE <= 1, "PACE_UP_SHARE must be above 0 and at most 1: a share of the rate"),
        (not 0 < settings.PACE_DOWN_FACTOR < 1, "PACE_DOWN_FACTOR must be above 0 and below 1"),
    ]
    return [Error(text, id=f"queue.E{number:03}") for number, (is_wrong, text) in enumerate(wrong, 1) if is_wrong]
