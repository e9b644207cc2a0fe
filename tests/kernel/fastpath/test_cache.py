"""Reads of a cache by threads: one at a time for each key, and of different keys side by side."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from apps.kernel.fastpath.cache import RefreshingCache, make_room

SECONDS_MAX = 10


class SlowReader:
    """Reads values; a key in `blocked` is read only once `release` is set."""

    def __init__(self, *blocked: int) -> None:
        self.blocked = blocked
        self.has_begun = threading.Event()
        self.release = threading.Event()
        self.reads: list[int] = []

    def __call__(self, key: int) -> str:
        self.reads.append(key)
        if key in self.blocked:
            self.has_begun.set()
            assert self.release.wait(SECONDS_MAX)
        return f"value {key}"


def cache_of(reader: SlowReader) -> RefreshingCache[int, str]:
    return RefreshingCache(reader, fresh_seconds=60, stale_seconds=60, most=10)


def test_a_slow_read_of_one_key_does_not_delay_the_read_of_another() -> None:
    """T1: reads key 1, and PostgreSQL does not answer
    T2: reads key 2 and returns, while T1 still waits
    """
    reader = SlowReader(1)
    cache = cache_of(reader)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(cache.read, 1)
        assert reader.has_begun.wait(SECONDS_MAX)
        try:
            assert threads.submit(cache.read, 2).result(SECONDS_MAX / 2) == "value 2"
            assert not first.done()
        finally:
            reader.release.set()
        assert first.result(SECONDS_MAX) == "value 1"


def test_threads_that_need_the_same_value_read_it_once() -> None:
    reader = SlowReader(1)
    cache = cache_of(reader)
    with ThreadPoolExecutor(8) as threads:
        reads = [threads.submit(cache.read, 1) for _ in range(8)]
        assert reader.has_begun.wait(SECONDS_MAX)
        reader.release.set()
        assert {read.result(SECONDS_MAX) for read in reads} == {"value 1"}
    assert reader.reads == [1]


def test_a_failed_read_is_repeated_by_the_next_caller() -> None:
    values = iter([ConnectionError("unavailable"), "value"])

    def read(key: int) -> str:
        value = next(values)
        if isinstance(value, Exception):
            raise value
        return value

    cache: RefreshingCache[int, str] = RefreshingCache(read, fresh_seconds=60, stale_seconds=60, most=10)
    with pytest.raises(ConnectionError):
        cache.read(1)
    assert cache.read(1) == "value"


def test_many_new_values_do_not_remove_one_that_is_refreshed() -> None:
    values = {0: 1.0}
    for key in range(1, 50):
        make_room(values, 10, lambda refreshed_at: refreshed_at)
        values[key] = float(key)
        values[0] = key + 0.5
    assert sorted(values) == [0, *range(41, 50)]
