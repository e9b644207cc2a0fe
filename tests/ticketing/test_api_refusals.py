"""Any input to the API gets a JSON response: never an HTML page, never a 500."""

import json
import uuid
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.events import facade as events
from apps.kernel.observability.log_context import RequestIdFilter
from tests.support.api_client import Api, assert_problem
from tests.support.tiers import examples

HOLD = "/events/concert/reservations"
UNKNOWN_RESERVATION = f"/reservations/{uuid.UUID(int=7)}"
TAKE_A_BODY = [
    ("POST", "/events/concert/queue"),
    ("POST", HOLD),
    ("POST", "/auth/token"),
    ("POST", "/auth/token/refresh"),
]
EVERYTHING = [
    ("GET", "/events"),
    ("GET", "/events/concert"),
    ("GET", "/events/concert/sections"),
    ("GET", "/events/concert/sections/hall/seats"),
    ("GET", "/events/concert/queue/status"),
    ("DELETE", "/events/concert/queue"),
    ("GET", UNKNOWN_RESERVATION),
    ("DELETE", UNKNOWN_RESERVATION),
    *TAKE_A_BODY,
]
DEEP = 40_000

MALFORMED: dict[str, bytes] = {
    "not json": b"hello",
    "half": b'{"seats": ["hall-A-1"',
    "two values": b"{}{}",
    "not utf-8": b'{"seats": ["\xff\xfe"]}',
    "utf-16": '{"seats": []}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "NaN": b'{"ga_quantity": NaN}',
    "Infinity": b'{"ga_quantity": -Infinity}',
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "nested past the bound": b"[" * 40 + b"]" * 40,
    "a name twice": b'{"ga_quantity": 1, "ga_quantity": 2}',
    "a number of ten thousand digits": b'{"ga_quantity": ' + b"9" * 10_000 + b"}",
    "only a space": b" ",
    "nul bytes": b"\x00\x00",
}
UNUSABLE: dict[str, bytes] = {
    "a nul in a value": b'{"seats": ["hall\\u0000A-1"]}',
    "a nul in a name": b'{"se\\u0000ats": []}',
    "half a surrogate pair": b'{"seats": ["\\ud800"]}',
    "half a surrogate pair in a name": b'{"\\udfff": 1}',
    "a list": b"[]",
    "a text": b'"seats"',
    "null": b"null",
    "true": b"true",
    "a long number": b"1" * 300,
    "a number too large for any float": b"1e999",
}


@pytest.mark.parametrize(("method", "path"), TAKE_A_BODY)
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_invalid_json_is_malformed(api: Api, concert: events.EventView, method: str, path: str, body: bytes) -> None:
    assert_problem(api.call(method, path, body, token=_token(api, path), key="k"), 400, "malformed")


@pytest.mark.parametrize(("method", "path"), TAKE_A_BODY)
@pytest.mark.parametrize("body", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_json_with_unusable_values_is_invalid(
    api: Api, concert: events.EventView, method: str, path: str, body: bytes
) -> None:
    assert_problem(api.call(method, path, body, token=_token(api, path), key="k"), 422, "invalid")


@pytest.mark.parametrize(("method", "path"), TAKE_A_BODY)
def test_a_body_beyond_the_limit_is_too_large(api: Api, concert: events.EventView, method: str, path: str) -> None:
    body = json.dumps({"seats": ["x" * 300_000]}).encode()
    assert_problem(api.call(method, path, body, token=_token(api, path), key="k"), 413, "too-large")


@pytest.mark.parametrize(("method", "path"), TAKE_A_BODY)
@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "", "x",
     "application/json-patch+json", "é/ÿ"],
)  # fmt: skip
def test_a_body_of_another_type_is_not_read(
    api: Api, concert: events.EventView, method: str, path: str, content_type: str
) -> None:
    headers = {"content_type": content_type}
    refused = api.call(method, path, b'{"seats": []}', token=_token(api, path), key="k", **headers)
    assert_problem(refused, 415, "unsupported-media-type")


@pytest.mark.parametrize("charset", ["utf-8", "latin-1", "utf-7", "hex", "bz2", "nonsense", "undefined"])
def test_the_charset_of_the_content_type_is_ignored(api: Api, concert: events.EventView, charset: str) -> None:
    token = api.admission("concert")
    headers = {"content_type": f"application/json; charset={charset}"}
    response = api.call("POST", HOLD, {"seats": ["hall-A-1"]}, token=token, key="k", **headers)
    assert response.status_code == 201, response.content


@pytest.mark.parametrize("path", sorted({path for _, path in EVERYTHING}))
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_every_method_at_every_url_has_a_response(api: Api, concert: events.EventView, method: str, path: str) -> None:
    response = api.call(method, path, token=_token(api, path), key="k")
    taken = {taken for taken, address in EVERYTHING if address == path}
    assert response.status_code < 500
    if method not in taken | {"OPTIONS"} and not (method == "HEAD" and "GET" in taken):
        assert response.status_code == 405
        assert taken <= set(response.headers["Allow"].split(", "))
        assert method == "HEAD" or response.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "path",
    [
        "/", "/nowhere", "/events/", "/events/%00", "/events/a%20b", "/events/%F0%9F%8E%AB", "/events/%ff%fe",
        "/events/../../etc/passwd", "/events/" + "x" * 5_000, "/events/nowhere", "/events/concert/sections/updated",
        "/events/concert/sections/%00/seats", "/reservations/", "/orders/7", "/events/concert/queue/status/",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_url_is_a_problem_document(api: Api, concert: events.EventView, method: str, path: str) -> None:
    response = api.call(method, path, token=api.admission("concert"))
    if path in ("/events/nowhere", "/events/" + "x" * 5_000) and method != "GET":
        assert_problem(response, 405, "method-not-allowed")
    else:
        assert_problem(response, 404, "not-found")


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "image/*", "*/*;q=0", "nonsense", ""])
@pytest.mark.parametrize("path", ["/events/concert/sections", "/events/concert/queue/status", "/events"])
def test_the_api_returns_json_for_any_accept_header(
    api: Api, concert: events.EventView, path: str, accept: str
) -> None:
    response = api.get(path, token=_token(api, path), accept=accept)
    assert response.status_code in (200, 406)
    assert response.headers["Content-Type"] in ("application/json", "application/problem+json")
    json.loads(response.content)


def test_an_unknown_format_is_not_acceptable(api: Api, concert: events.EventView) -> None:
    for path in ("/events", "/schema"):
        assert_problem(api.get(f"{path}?format=xml"), 406, "not-acceptable")
    assert api.get("/events?format=json").status_code == 200


def test_an_unknown_host_is_refused(api: Api, concert: events.EventView) -> None:
    for host in ("evil.example", "a b", "[::", "x:y", ""):
        assert_problem(api.get("/events/concert/sections", host=host), 400, "malformed")


def test_a_server_error_is_a_problem_document_without_details(
    api: Api, concert: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(event_id: int) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr("apps.reservations.api_views.events.list_sections", break_down)
    api.client = Client(raise_request_exception=False)
    response = api.get("/events/concert/sections")
    assert_problem(response, 500, "fault")
    assert b"secret" not in response.content


def test_every_response_has_a_request_id_that_is_logged(
    api: Api, concert: events.EventView, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(RequestIdFilter())
    # By default refusals are not logged: an on-sale has many.
    caplog.set_level("WARNING", logger="django.request")
    assert api.get("/nowhere", x_request_id="abc-12345").headers["X-Request-Id"] == "abc-12345"
    assert {record.__dict__["request_id"] for record in caplog.records} == {"abc-12345"}
    for bad in ("short", "x" * 65, "with space!", "line\tbreak-is-bad"):
        assert api.get("/nowhere", x_request_id=bad).headers["X-Request-Id"] != bad


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["hall", "floor", "hall-A-1"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
HOLD_REQUEST = st.fixed_dictionaries(
    {},
    optional={
        "seats": ANYTHING,
        "ga_section": ANYTHING,
        "ga_quantity": ANYTHING,
        "best_available": ANYTHING
        | st.fixed_dictionaries(
            {},
            optional={
                "section": ANYTHING,
                "quantity": ANYTHING,
                "category": ANYTHING,
                "price_max_minor": ANYTHING,
                "accessible": ANYTHING,
                "companions": ANYTHING,
            },
        ),
    },
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=HOLD_REQUEST | ANYTHING)
def test_arbitrary_bodies_do_not_break_the_hold(api: Api, concert: events.EventView, body: Any) -> None:
    token = api.admission("concert")
    response = api.post(HOLD, json.dumps(body).encode("utf-8", "surrogatepass"), token=token, key=uuid.uuid4().hex)
    assert response.status_code in (201, 400, 409, 422)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=HOLD_REQUEST | ANYTHING)
def test_arbitrary_bodies_do_not_break_the_offers(api: Api, concert: events.EventView, body: Any) -> None:
    token = api.admission("concert")
    response = api.post("/events/concert/offers", json.dumps(body).encode("utf-8", "surrogatepass"), token=token)
    assert response.status_code in (200, 400, 422)


def _token(api: Api, path: str) -> str:
    return api.admission("concert") if path.startswith("/events/") else ""


def test_a_busy_response_is_not_logged_as_an_error(
    api: Api, concert: events.EventView, caplog: pytest.LogCaptureFixture
) -> None:
    """The live stream is served by `web` only; a request for it at the site is refused with 503."""
    assert_problem(api.call("GET", "/events/concert/sections/updates"), 503, "busy")
    assert not [record for record in caplog.records if record.name == "django.request"]
