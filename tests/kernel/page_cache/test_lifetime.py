"""Which responses are kept, and the Cache-Control that they are sent with as they age."""

import pytest

from apps.kernel.page_cache.lifetime import read_lifetime

PAGE = b"public, max-age=10, s-maxage=300, stale-while-revalidate=60"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"cache-control", b"max-age=10")],
        [(b"cache-control", b"private, max-age=10")],
        [(b"cache-control", b"public, no-store, max-age=10")],
        [(b"cache-control", b"public, no-cache, max-age=10")],
        [(b"cache-control", b"public")],
        [(b"cache-control", b"public, max-age=ten")],
        [(b"cache-control", b"public, max-age=10, max-age=20")],
        [(b"cache-control", PAGE), (b"cache-control", b"private")],
        [(b"cache-control", PAGE), (b"set-cookie", b"a=1")],
        [(b"cache-control", PAGE), (b"vary", b"Accept-Encoding, Cookie")],
        [(b"cache-control", PAGE), (b"vary", b"*")],
        [(b"cache-control", PAGE), (b"vary", b"Accept-Language")],
        [(b"cache-control", PAGE), (b"content-encoding", b"gzip")],
    ],
)
def test_what_may_not_be_the_same_for_all_is_not_kept(headers: list[tuple[bytes, bytes]]) -> None:
    assert read_lifetime(200, headers, varies_by_language=False) is None


@pytest.mark.parametrize("status", [206, 301, 304, 404, 500])
def test_only_whole_pages_are_kept(status: int) -> None:
    assert read_lifetime(status, [(b"cache-control", PAGE)], varies_by_language=False) is None


def test_times_are_sent_without_the_age_of_the_copy() -> None:
    lifetime = read_lifetime(200, [(b"cache-control", PAGE), (b"vary", b"accept-encoding")], varies_by_language=False)
    assert lifetime is not None
    assert lifetime.seconds == 300
    assert lifetime.cache_control(12) == b"public, max-age=10, s-maxage=288, stale-while-revalidate=60"
    plan = read_lifetime(200, [(b"cache-control", b"public, max-age=300")], varies_by_language=False)
    assert plan is not None
    assert plan.cache_control(12) == b"public, max-age=288"


def test_pages_in_several_languages_are_kept_if_they_have_a_key_each() -> None:
    headers = [(b"cache-control", PAGE), (b"vary", b"Accept-Language, Accept-Encoding")]
    assert read_lifetime(200, headers, varies_by_language=True) is not None
