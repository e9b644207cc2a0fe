"""Access to Redis. Its data can lead to a refusal but never grants anything, and it may become unavailable at any
moment: every caller catches RedisUnavailable, or uses `attempt`, which does.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from django_redis import get_redis_connection
from django_redis.exceptions import ConnectionInterrupted
from django_redis.serializers.base import BaseSerializer
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)

RedisUnavailable = RedisError
OUTAGE_PAUSE_SECONDS = 1.0
"""After a failure Redis is not used for this time, so that requests do not wait for further timeouts."""

Value = TypeVar("Value")


class _Outage:
    """This process's record of an outage."""

    paused_until = 0.0
    is_on = False


_outage = _Outage()


def client() -> Redis:
    """Return a pooled client with short timeouts. All its methods may raise RedisUnavailable."""
    return get_redis_connection("default")


def attempt(act: Callable[[Redis], Value]) -> Value | None:
    """Return the result of `act`, or None if Redis failed, or if it failed less than OUTAGE_PAUSE_SECONDS ago.

    The start and the end of an outage are logged, one line each. An error that Redis itself returns (such as a wrong
    type of a key) is logged and returns None, but is not an outage.
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
        logger.warning("Redis is available again")
    _outage.is_on = False
    return value


def is_paused() -> bool:
    """Return whether Redis failed less than OUTAGE_PAUSE_SECONDS ago and is not used for now."""
    return time.monotonic() < _outage.paused_until


def note_outage(error: RedisError) -> None:
    """Record a failure: pause, and log the start of an outage."""
    _outage.paused_until = time.monotonic() + OUTAGE_PAUSE_SECONDS
    if not _outage.is_on:
        reason = log_context.summarize_error(error)
        logger.warning("Redis is unavailable (%s); PostgreSQL answers until it returns", reason)
    _outage.is_on = True


def log_refusals(_: Redis, answers: Sequence[Any]) -> None:
    """Log the errors among Redis's answers."""
    for answer in answers:
        if isinstance(answer, ResponseError):
            logger.warning("Redis refused: %s", log_context.summarize_error(answer))


class CommandBatch(NamedTuple):
    """Commands, and the handler of their answers, which include the errors that Redis returned."""

    commands: Sequence[Sequence[Any]]
    handle_answers: Callable[[Redis, Sequence[Any]], object] = log_refusals


def run_command_batches(batches: Sequence[CommandBatch]) -> bool:
    """Run all commands in one round trip and handle their answers; return whether Redis was available."""

    def run(client: Redis) -> bool:
        with client.pipeline(transaction=False) as pipe:
            for batch in batches:
                for command in batch.commands:
                    pipe.execute_command(*command)
            answers = pipe.execute(raise_on_error=False)
        for batch in batches:
            batch.handle_answers(client, answers[: len(batch.commands)])
            answers = answers[len(batch.commands) :]
        return True

    return not batches or attempt(run) is True


def forget_outage() -> None:
    """Use Redis again at once, whatever failed before."""
    _outage.paused_until, _outage.is_on = 0.0, False


class MsgpackSerializer(BaseSerializer):
    """The serializer of Django's cache: plain data and bytes as MessagePack, so that no value in Redis can run code. A
    value in any other format is a miss."""

    def dumps(self, value: Any) -> bytes:
        """Return the value as MessagePack. Raises TypeError for a type that MessagePack lacks."""
        return msgspec.msgpack.encode(value)

    def loads(self, value: bytes) -> Any:
        """Return the value. The error for any other format is the one that IGNORE_EXCEPTIONS turns into a miss."""
        try:
            return msgspec.msgpack.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ConnectionInterrupted(connection=None) from error
