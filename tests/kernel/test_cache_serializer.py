"""The cache decodes plain data only: a pickle that an attacker has put into Redis does not run."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from redis import Redis

from apps.events.public_plan import documents
from apps.kernel.fastpath.cache import clear_all
from tests.support import factories

VALUES = [b"bytes\x80\xff", "text", 7, -1.5, True, None, [1, "a", None], {"key": [b"x", {}]}]


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def put(redis_client: Redis, key: str, raw: bytes) -> None:
    redis_client.set(cache.make_key(key), raw)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_in_the_cache_is_a_miss_and_does_not_run(redis_client: Redis, tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "written"
    raw = pickle.dumps(Payload(path), protocol)
    put(redis_client, "key", raw)
    assert cache.get("key") is None
    assert cache.get("key", "default") == "default"
    assert cache.get_or_set("key", "computed") in ("computed", None)
    assert not path.exists()
    pickle.loads(raw)
    assert path.exists(), "the pickle would have run"


def test_a_pickle_in_place_of_a_seating_plan_does_not_run(redis_client: Redis, tmp_path: Path, db: None) -> None:
    factories.make_event("concert")
    document = documents.plan_document("concert")
    (key,) = cache.keys("events:drawing.gz:*")
    drawing = cache.get(key)
    assert isinstance(drawing, bytes), "its drawing is in the cache"
    path = tmp_path / "written"
    put(redis_client, key, pickle.dumps(Payload(path)))
    clear_all()
    assert documents.plan_document("concert") == document
    assert not path.exists()
    assert cache.get(key) == drawing, "the next request replaces it"


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\x92\x01", b"\x91" * 5_000, b"\x80\x80"])
def test_a_damaged_value_is_a_miss(redis_client: Redis, raw: bytes) -> None:
    put(redis_client, "key", raw)
    assert cache.get("key") is None


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_data_is_returned_unchanged(value: Any) -> None:
    cache.set("key", value, 60)
    assert cache.get("key") == value


def test_an_object_of_our_own_is_refused_when_it_is_stored() -> None:
    with pytest.raises(TypeError):
        cache.set("key", object(), 60)
