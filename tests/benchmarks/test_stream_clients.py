"""What listeners are found to have heard: counted right, whoever wrote the frame and however it was cut."""

import asyncio

from benchmarks.support.stream_clients import (
    PLACES,
    ClientLog,
    ClientPool,
    DeliveryReport,
    EventStreamClient,
    _free_in,
    _message,
)

RELAYED = b'{"sections":[{"available_seats":999,"section_id":"floor-0"},{"available_seats":5,"section_id":"floor-1"}]}'
COUNTED_HERE = (
    b'{"sections":[{"section_id":"floor-0","available_seats":77},{"section_id":"floor-1","available_seats":5}]}'
)


def test_the_count_is_read_in_either_spelling_and_the_newest_counts() -> None:
    assert _free_in(RELAYED) == 999
    assert _free_in(COUNTED_HERE) == 77
    assert _free_in(RELAYED + RELAYED.replace(b"999", b"998")) == 998
    assert _free_in(b'{"available_seats":1000000,"section_id":"floor-0"}') == PLACES
    assert _free_in(COUNTED_HERE[: COUNTED_HERE.index(b"7}")]) is None
    assert _free_in(b": \n\n") is None


def test_a_frame_cut_anywhere_is_heard_once_whole() -> None:
    for text, free in ((RELAYED, 999), (COUNTED_HERE, 77)):
        for cut in range(len(text)):
            crowd = ClientPool(0, "/", "events")
            ear = EventStreamClient(crowd, ClientLog(), ("", 0))
            crowd.takes_notes = True
            ear.data_received(text[:cut])
            ear.data_received(text[cut:])
            assert list(ear.notes.taken) == [PLACES - free]


def heard(committed: list[float], told: list[list[tuple[float, int]]], *, back: int | None = None) -> DeliveryReport:
    crowd = ClientPool(0, "/", "events")
    for number, frames in enumerate(told):
        notes = ClientLog()
        notes.has_come_back = number == back
        for moment, taken in frames:
            notes.at.append(moment)
            notes.taken.append(taken)
            notes.last = taken
        crowd.listeners.append(EventStreamClient(crowd, notes, ("", 0)))
    return asyncio.run(crowd.heard(committed, 10, 2.0))


def test_a_hold_is_heard_with_the_first_frame_that_says_at_least_as_many() -> None:
    found = heard([100.0, 100.5, 101.0], [[(100.2, 11), (101.2, 13)]])
    assert (found.expected, found.late, found.lost, found.behind) == (3, 0, 0, 0)
    assert round(found.worst_ms) == 700


def test_what_came_late_and_what_never_came_are_both_counted() -> None:
    found = heard([100.0, 100.5, 101.0], [[(102.6, 12)], [(100.1, 11), (101.1, 13)]])
    # The first listener heard of two holds 2.6 and 2.1 s later, and of the third never.
    assert (found.expected, found.late, found.lost, found.behind) == (6, 3, 1, 1)
    assert found.on_time == 0.5


def test_who_came_back_late_is_told_apart_from_who_stayed() -> None:
    told = [[(102.6, 11)], [(100.1, 11)]]
    assert (heard([100.0], told).late, heard([100.0], told, back=0).late_for_stayers) == (1, 0)
    assert heard([100.0], told, back=0).on_time_for_stayers == 1
    assert heard([100.0], told, back=1).on_time_for_stayers == 0


def test_frames_from_before_and_said_again_change_nothing() -> None:
    found = heard([100.0], [[(99.0, 10), (100.1, 11), (105.0, 11)]])
    assert (found.late, found.lost, found.behind) == (0, 0, 0)


def test_messages_of_a_socket_are_taken_apart() -> None:
    long = b"x" * 300
    data = bytes((0x81, 2)) + b"hi" + bytes((0x81, 126)) + len(long).to_bytes(2) + long + bytes((0x89, 0))
    operation, body, data = _message(data) or (0, b"", b"")
    assert (operation, body) == (1, b"hi")
    operation, body, data = _message(data) or (0, b"", b"")
    assert (operation, body) == (1, long)
    assert _message(data[:1]) is None
    assert _message(data) == (9, b"", b"")
