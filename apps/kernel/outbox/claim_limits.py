"""How many messages of each topic a claim may take."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from django.conf import settings


class LimitedTopic(Protocol):
    """What `facade.Topic` knows of its limits."""

    @property
    def together_max(self) -> int | None: ...
    @property
    def has_lists(self) -> bool: ...
    @property
    def is_shared(self) -> bool: ...


class ClaimLimits(NamedTuple):
    """Parameters of claim_messages.sql: arrays with one element for each topic, and the common limit."""

    topics: list[str]
    allowances: list[int | None]
    """None: no limit."""
    in_lists: list[bool]
    under_way: list[int]
    are_shared: list[bool]
    shared_allowance: int
    """For all topics together that share threads."""


def shared_max() -> int:
    """Return how many threads of a process the topics that share some may use together: half of those for mails."""
    return max(1, settings.MAIL_DELIVERERS // 2)


def read_limits(
    topics: Mapping[str, LimitedTopic],
    under_way: Mapping[str, int],
    busy_lists: Collection[str] | None,
    list_max: int,
) -> ClaimLimits:
    """Return the limits of a claim by a process with these messages under way, by topic; `busy_lists`: see
    `facade.claim`."""
    names = sorted(topics)
    shared_left = max(0, shared_max() - sum(under_way.get(name, 0) for name in names if topics[name].is_shared))

    def allowance(name: str, in_list: bool) -> int | None:
        topic = topics[name]
        if in_list and name in (busy_lists or ()):
            return 0
        limits = [list_max] if in_list else []
        if topic.together_max is not None:
            limits.append(max(0, topic.together_max - under_way.get(name, 0)))
        if topic.is_shared:
            limits.append(shared_left)
        return min(limits, default=None)

    in_lists = [busy_lists is not None and topics[name].has_lists for name in names]
    return ClaimLimits(
        topics=names,
        allowances=[allowance(*pair) for pair in zip(names, in_lists, strict=True)],
        in_lists=in_lists,
        under_way=[under_way.get(name, 0) for name in names],
        are_shared=[topics[name].is_shared for name in names],
        shared_allowance=shared_left,
    )
