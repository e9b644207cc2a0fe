"""Refusals of feeds."""

from apps.kernel.http import problems


class FeedNotFound(problems.NotFound):
    """The organizer has no feed of this name."""


class MessageGone(problems.NotFound):
    """The feed has no such message: the handle is unknown, or the message's time is over."""


class ReceiptOutdated(problems.Problem):
    """The message was received again after its visibility time-out, or is a dead letter. Nothing was changed."""

    type, status, title = "receipt-outdated", 409, "This is not the latest receipt handle of the message."


class FeedFull(problems.Problem):
    """Nothing of the list was sent. `limit` names the limit, `max` its value."""

    type, status, title = "feed-full", 409, "The feed is full. Receive and delete messages first."


class TooManyFeeds(problems.Problem):
    """`max`: how many feeds an organizer can have."""

    type, status, title = "feeds-max", 409, "The organizer has its limit of feeds. Delete one first."
