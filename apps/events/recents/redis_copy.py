"""The copy of recent searches in Redis, kept for seven days: the outbox's handler, and the repair after a read."""

from collections.abc import Sequence

from redis import Redis

from apps.events.models import SearchHistory
from apps.events.recents import history
from apps.events.recents.history import SEARCHES_MAX, State
from apps.events.recents.owners import redis_key_of
from apps.kernel import lua, redis
from apps.kernel.outbox.facade import Message, RetryLater

KEPT_DAYS = 7
RETRY_SECONDS = 15.0
_KEPT_MS = KEPT_DAYS * 86_400_000
_keep = lua.load("apps.events", "keep_recent_searches")


def follow(message: Message) -> None:
    """Handle an outbox message: write the present state to Redis, whatever has changed since the message; delete the
    copy of a history that is gone. Raises RetryLater while Redis is away: what was deleted must not stay there."""
    key, history_id = message.body["key"], message.body["history"]
    name = SearchHistory.objects.filter(pk=history_id).values_list("owner", flat=True).first()
    if name is None:
        # The owner may have begun a new history, whose message could have been handled before: a copy of that is only
        # repaired by the next read.
        done = redis.attempt(lambda client: client.delete(key))
    else:
        done = redis.attempt(lambda client: _repair(client, [name]))
    if done is None:
        raise RetryLater(RETRY_SECONDS, "Redis is away")


def repair(names: list[str]) -> list[None]:
    """Write the present state of these owners' histories to Redis, if it is there. One result for each name."""
    redis.attempt(lambda client: _repair(client, names))
    return [None] * len(names)


def _repair(client: Redis, names: Sequence[str]) -> bool:
    # The headers first: a header that is newer than what PostgreSQL has afterwards is of a version that PostgreSQL has
    # lost, not of one that was committed between the two reads.
    keys = {name: redis_key_of(name) for name in names}
    with client.pipeline(transaction=False) as pipe:
        for key in keys.values():
            pipe.lindex(key, 0)
        known = dict(zip(keys, pipe.execute(), strict=True))
    states = history.read_states(keys)
    for name, key in keys.items():
        state = states.get(name)
        if state is not None:
            _keep.run(client, [key], arguments(state, _text(known[name])))
        elif known[name] is not None:
            client.delete(key)
    return True


def arguments(state: State, known_header: str) -> list[str | bytes | int]:
    """Return the arguments of the script. `known_header`: the copy's, read before the state; empty if there is none."""
    known = _version(known_header)
    lost = known_header if known is not None and known > state.version else ""
    return [state.header, lost, _KEPT_MS, *state.recents.searches]


def _version(header: str) -> tuple[int, int] | None:
    parts = header.split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) == 3 and all(map(str.isdecimal, parts[:2])) else None


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def read_command(name: str) -> tuple[str, str, int, int]:
    """Return the command that reads an owner's copy: its header and searches."""
    return ("LRANGE", redis_key_of(name), 0, SEARCHES_MAX)


def searches_in(reply: object, header: str) -> tuple[str, ...] | None:
    """Return the searches in a reply to `read_command`; None unless it is the copy with this header."""
    if not isinstance(reply, list) or not reply or _text(reply[0]) != header:
        return None
    return tuple(map(_text, reply[1:]))
