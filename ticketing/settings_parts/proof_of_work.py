"""Settings of proof of work and screening (docs/operations/waiting-room.md), from the environment."""

import environ
from django.core.exceptions import ImproperlyConfigured

from ticketing import settings_parser

_env = environ.Env()


def _bucket(name: str, default: str) -> tuple[float, int]:
    found = settings_parser.parse_rate(name, _env.str(name, default=default))
    if found is None:
        raise ImproperlyConfigured(f"{name} must be a rate, as in {default}")
    return found


def _choice(name: str, choices: tuple[str, ...]) -> str:
    value: str = _env.str(name, default=choices[0])
    if value not in choices:
        raise ImproperlyConfigured(f"{name} must be {' or '.join(choices)}, not {value!r}")
    return value


def _whole(name: str, default: int, *, least: int, most: int) -> int:
    try:
        value: int = _env.int(name, default=default)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must be a number: {error}") from error
    if not least <= value <= most:
        raise ImproperlyConfigured(f"{name} must be from {least} to {most}, not {value}")
    return value


# When new rooms and the log-in want proof of work: off, pressure or on.
PROOF_OF_WORK_JOIN = _choice("PROOF_OF_WORK_JOIN", ("off", "pressure", "on"))
PROOF_OF_WORK_LOG_IN = _choice("PROOF_OF_WORK_LOG_IN", ("off", "pressure", "on"))
# Derivations on average, without and with the most points of a score; and seconds for browsers without JavaScript.
PROOF_OF_WORK_STEPS = _whole("PROOF_OF_WORK_STEPS", 2_000, least=1, most=1_000_000)
PROOF_OF_WORK_STEPS_MAX = _whole("PROOF_OF_WORK_STEPS_MAX", 64_000, least=1, most=10_000_000)
PROOF_OF_WORK_DELAY_SECONDS = _whole("PROOF_OF_WORK_DELAY_SECONDS", 20, least=0, most=600)
# Buckets, as RATE:BURST, that the score and the pressure are computed from. They refuse nothing.
PROOF_OF_WORK_ADDRESS = _bucket("PROOF_OF_WORK_ADDRESS", "1:200")
PROOF_OF_WORK_NETWORK = _bucket("PROOF_OF_WORK_NETWORK", "4:800")
PROOF_OF_WORK_PRESSURE = _bucket("PROOF_OF_WORK_PRESSURE", "10:100")
