"""Where news of an event are told."""


def group_of(event_id: int) -> str:
    """The channel layer's group: who serves listeners is in it."""
    return f"live.{event_id}"


def topic_of(event_id: int) -> str:
    """What everybody listens to who listens to the event, within one process."""
    return f"event:{event_id}"
