"""Names of the channels that carry an event's live updates."""


def group_of(event_id: int) -> str:
    """Return the channel layer's group; every process with listeners of the event has joined it."""
    return f"live.{event_id}"


def topic_of(event_id: int) -> str:
    """Return the hub's topic that all listeners of the event subscribe to within one process."""
    return f"event:{event_id}"
