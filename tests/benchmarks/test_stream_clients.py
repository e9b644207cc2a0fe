"""Listeners' delivery reports are counted correctly, for every format of frames and however they are split."""

import asyncio

from benchmarks.support.stream_clients import (
    CAPACITY,
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


def test_the_count_is_read_in_either_format_and_the_newest_is_used() -> None:
    assert _free_in(RELAYED) == 999
    assert _free_in(COUNTED_HERE) == 77
    assert _free_in(RELAYED + RELAYED.replace(b"999", b"998")) == 998
    assert _free_in(b'{"available_seats":1000000,"section_id":"floor-0"}') == CAPACITY
    assert _free_in(COUNTED_HERE[: COUNTED_HERE.index(b"7}")]) is None
    assert _free_in(b": \n\n") is None


def test_a_frame_split_anywhere_is_recorded_once() -> None:
    for text, free in ((RELAYED, 999), (COUNTED_HERE, 77)):
        for cut in range(len(text)):
            pool = ClientPool(0, "/", "events")
            client = EventStreamClient(pool, ClientLog(), ("", 0))
            pool.is_recording = True
            client.data_received(text[:cut])
            client.data_received(text[cut:])
            assert list(client.log.taken) == [CAPACITY - free]


def report(
    committed: list[float], received: list[list[tuple[float, int]]], *, back: int | None = None
) -> DeliveryReport:
    pool = ClientPool(0, "/", "events")
    for number, frames in enumerate(received):
        log = ClientLog()
        log.has_come_back = number == back
        for moment, taken in frames:
            log.at.append(moment)
            log.taken.append(taken)
            log.last = taken
        pool.listeners.append(EventStreamClient(pool, log, ("", 0)))
    return asyncio.run(pool.report(committed, 10, 2.0))


def test_a_hold_is_delivered_by_the_first_frame_with_at_least_its_count() -> None:
    found = report([100.0, 100.5, 101.0], [[(100.2, 11), (101.2, 13)]])
    assert (found.expected, found.late, found.lost, found.behind) == (3, 0, 0, 0)
    assert round(found.worst_ms) == 700


def test_late_and_lost_deliveries_are_counted() -> None:
    found = report([100.0, 100.5, 101.0], [[(102.6, 12)], [(100.1, 11), (101.1, 13)]])
    # The first listener receives two holds 2.6 and 2.1 s later, and the third never.
    assert (found.expected, found.late, found.lost, found.behind) == (6, 3, 1, 1)
    assert found.on_time == 0.5


def test_late_deliveries_after_a_reconnection_are_counted_separately() -> None:
    received = [[(102.6, 11)], [(100.1, 11)]]
    assert (report([100.0], received).late, report([100.0], received, back=0).late_for_stayers) == (1, 0)
    assert report([100.0], received, back=0).on_time_for_stayers == 1
    assert report([100.0], received, back=1).on_time_for_stayers == 0


def test_earlier_and_repeated_frames_change_nothing() -> None:
    found = report([100.0], [[(99.0, 10), (100.1, 11), (105.0, 11)]])
    assert (found.late, found.lost, found.behind) == (0, 0, 0)


def test_websocket_messages_are_parsed() -> None:
    long = b"x" * 300
    data = bytes((0x81, 2)) + b"hi" + bytes((0x81, 126)) + len(long).to_bytes(2) + long + bytes((0x89, 0))
    operation, body, data = _message(data) or (0, b"", b"")
    assert (operation, body) == (1, b"hi")
    operation, body, data = _message(data) or (0, b"", b"")
    assert (operation, body) == (1, long)
    assert _message(data[:1]) is None
    assert _message(data) == (9, b"", b"")
