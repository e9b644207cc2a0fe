"""Turns of mails to new domains: those for which the mail server is not known to accept mails.

A mail that may not be sent yet asks again a few seconds later. Of those that wait, first attempts go before repeats,
and of these the one whose origin has had no turn for the longest time. So a client with mails to many domains that do
not answer delays another client by one such mail, not by all of them. The topics that strangers can cause have turns in
the same way among themselves.

The origin of a mail that a client asked for is its network (`mail_caps.origin_of`), also of one with the tickets of a
free order. That of paid tickets is their organizer, then their event: mails for one event delay those for another by
one mail.
"""

from collections import Counter
from typing import NamedTuple, TypeVar

from apps.kernel.outbox import facade as outbox

OTHERS_MAX, STRANGERS_MAX = 4, 3
"""Mails to new domains that are sent at once: of each topic; and of those that strangers can cause one each, and this
many in all."""
WAIT_SECONDS, STRANGERS_WAIT_SECONDS = 2.0, 5.0
WAITING_SECONDS_MAX = 15.0
"""A mail that has not asked for this long waits no longer: another process may have sent it."""
KEPT_MAX = 1_000
_Key = TypeVar("_Key")
_stranger_topics: set[str] = set()


def register_stranger_topic(topic: str) -> None:
    """Count the mails of this outbox topic among those that strangers can cause, for any address."""
    _stranger_topics.add(topic)


class Sender(NamedTuple):
    """What a mail is sent for."""

    topic: str = ""
    origin: str = ""
    is_repeat: bool = False


def sender_of(message: outbox.Message) -> Sender:
    return Sender(message.topic, str(message.body.get(outbox.ORIGIN_FIELD, "")), message.attempts > 1)


class Turns:
    """The turns of this process. Not thread-safe. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._others: Counter[str] = Counter()
        """Mails that are being sent, by topic, except those that strangers can cause."""
        self._topics: set[str] = set()
        """The topics of those that strangers can cause."""
        self._asked_at: dict[Sender, float] = {}
        """When the senders that wait asked last."""
        self._began_at: dict[tuple[str, str], float] = {}
        """When the latest turn of a topic and origin began, and of a larger group."""
        self._topic_began_at: dict[str, float] = {}
        """When the latest turn of a topic began that strangers can cause."""

    def require(self, sender: Sender, now: float) -> None:
        """Raise outbox.RetryLater unless it is the turn of this sender."""
        is_strangers = sender.topic in _stranger_topics
        if is_strangers:
            has_room = sender.topic not in self._topics and not self._is_topic_behind(sender.topic, now)
        else:
            has_room = self._others[sender.topic] < OTHERS_MAX
        if has_room and not self._is_behind(sender, now):
            return
        _keep(self._asked_at, sender, now)
        seconds = STRANGERS_WAIT_SECONDS if is_strangers else WAIT_SECONDS
        raise outbox.RetryLater(seconds, "delayed: other mails to new domains are being sent")

    def begin(self, sender: Sender, now: float) -> None:
        self._asked_at.pop(sender, None)
        for group in _groups_of(sender.origin):
            _keep(self._began_at, (sender.topic, group), now)
        if sender.topic in _stranger_topics:
            self._topics.add(sender.topic)
            self._topic_began_at[sender.topic] = now
        else:
            self._others[sender.topic] += 1

    def end(self, sender: Sender) -> None:
        if sender.topic in _stranger_topics:
            self._topics.discard(sender.topic)
        else:
            self._others[sender.topic] -= 1

    def _is_topic_behind(self, topic: str, now: float) -> bool:
        """Return whether all turns that are left belong to other topics of strangers, which have waited for longer."""
        waiting = {
            other.topic
            for other, asked_at in self._asked_at.items()
            if other.topic in _stranger_topics - self._topics and now - asked_at < WAITING_SECONDS_MAX
        }
        began_at = self._topic_began_at.get(topic, float("-inf"))
        earlier = sum(self._topic_began_at.get(other, float("-inf")) < began_at for other in waiting - {topic})
        return earlier >= STRANGERS_MAX - len(self._topics)

    def _is_behind(self, sender: Sender, now: float) -> bool:
        own = self._rank(sender)
        return any(
            other.topic == sender.topic and now - asked_at < WAITING_SECONDS_MAX and self._rank(other) < own
            for other, asked_at in self._asked_at.items()
        )

    def _rank(self, sender: Sender) -> tuple[float, ...]:
        began = (self._began_at.get((sender.topic, group), float("-inf")) for group in _groups_of(sender.origin))
        return (sender.is_repeat, *began)


def _groups_of(origin: str) -> tuple[str, ...]:
    """Return the larger group of this origin, if any, and the origin."""
    group, slash, _ = origin.partition("/")
    return (group, origin) if slash else (origin,)


def _keep(times: dict[_Key, float], key: _Key, at: float) -> None:
    times.pop(key, None)
    times[key] = at
    while len(times) > KEPT_MAX:
        del times[next(iter(times))]
