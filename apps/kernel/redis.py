"""Redis, which may refuse but never grant, and may vanish at any moment: every caller catches RedisUnavailable, or lets
`attempt` do it."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from django_redis import get_redis_connection
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)

RedisUnavailable = RedisError
OUTAGE_PAUSE_SECONDS = 1.0
"""After a failure nothing is asked of it for so long: what would wait for a time-out again goes on without it."""

Value = TypeVar("Value")


class _Outage:
    """What this process knows of Redis's absence."""

    rests_until = 0.0
    is_on = False


_outage = _Outage()


def client() -> Redis:
    """A pooled client with short time-outs. Whatever it does may raise RedisUnavailable."""
    return get_redis_connection("default")


def attempt(act: Callable[[Redis], Value]) -> Value | None:
    """What `act` did with Redis, or None where that failed: at once, while it failed less than a second ago.

    The log has one line when Redis goes and one when it returns. An error that Redis itself answers (a key of another
    kind, say) is no outage: None, and the next attempt asks again.
    """
    if is_paused():
        return None
    try:
        value = act(client())
    except ResponseError as error:
        logger.warning("Redis refused: %s", log_context.summarize_error(error))
        return None
    except RedisUnavailable as error:
        note_outage(error)
        return None
    if _outage.is_on:
        logger.warning("Redis answers again")
    _outage.is_on = False
    return value


def is_paused() -> bool:
    """Whether it failed less than a second ago, so that nothing is asked of it."""
    return time.monotonic() < _outage.rests_until


def note_outage(error: RedisError) -> None:
    """It has just failed: it rests, and the log has a line if it had answered before."""
    _outage.rests_until = time.monotonic() + OUTAGE_PAUSE_SECONDS
    if not _outage.is_on:
        logger.warning("Redis is away (%s); PostgreSQL answers until it returns", log_context.summarize_error(error))
    _outage.is_on = True


def log_refusals(_: Redis, answers: Sequence[Any]) -> None:
    """The log says what Redis refused."""
    for answer in answers:
        if isinstance(answer, ResponseError):
            logger.warning("Redis refused: %s", log_context.summarize_error(answer))


class CommandBatch(NamedTuple):
    """Commands, and who hears what Redis answered each of them with, its errors too."""

    commands: Sequence[Sequence[Any]]
    hear: Callable[[Redis, Sequence[Any]], object] = log_refusals


def run_command_batches(errands: Sequence[CommandBatch]) -> bool:
    """All of these commands have run, in one journey, and were heard of; whether Redis took them."""

    def run(client: Redis) -> bool:
        with client.pipeline(transaction=False) as pipe:
            for errand in errands:
                for command in errand.commands:
                    pipe.execute_command(*command)
            answers = pipe.execute(raise_on_error=False)
        for errand in errands:
            errand.hear(client, answers[: len(errand.commands)])
            answers = answers[len(errand.commands) :]
        return True

    return not errands or attempt(run) is True


def forget_outage() -> None:
    """The next attempt is made, whatever came of the last one."""
    _outage.rests_until, _outage.is_on = 0.0, False
