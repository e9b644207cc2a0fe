"""How the site's application meets its server. It reads request bodies that its view has not read: the server closes a
connection with an unread body, and the next request on it would get no response. It returns files in one piece."""

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

import pytest
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.http import FileResponse, HttpResponse, StreamingHttpResponse

from ticketing.startup import drain_request_body, return_files_whole

BODY = b'{"visitor_id": "' + b"a" * 100_000 + b'"}'


@pytest.fixture(autouse=True)
def _no_database_connection() -> Iterator[None]:
    """A request checks the connection that an earlier test may have left, at its begin and end. Here there is no
    database."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


class Gone(BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise OSError("the client has gone away")


def ask(application: Any, body: Any, length: int = len(BODY)) -> str:
    """Return the status of the response to an unknown address."""
    statuses = []

    def start_response(status: str, headers: Iterable[tuple[str, str]], exc_info: Any = None) -> None:
        statuses.append(status)

    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/api/nothing-here",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(length) if length else "",
        "wsgi.input": body,
    }
    list(application(environ, start_response))
    return statuses[0]


def test_an_unread_body_is_read_to_its_end() -> None:
    django = WSGIHandler()
    unread, drained = BytesIO(BODY), BytesIO(BODY)
    assert (ask(django, unread), unread.tell()) == ("404 Not Found", 0), (
        "the control: without the wrapper the body stays unread"
    )
    assert (ask(drain_request_body(django), drained), drained.tell()) == ("404 Not Found", len(BODY))


def test_no_more_is_read_than_necessary() -> None:
    application = drain_request_body(WSGIHandler())
    endless, none = BytesIO(b"x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 5)), BytesIO(b"the next request")
    assert (ask(application, endless, 10**8), endless.tell()) == ("404 Not Found", settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    assert (ask(application, none, 0), none.tell()) == ("404 Not Found", 0)
    assert ask(application, Gone()) == "404 Not Found", "a disconnected client causes no error"


@pytest.mark.parametrize(
    ("response", "is_whole"),
    [
        pytest.param(lambda: FileResponse(BytesIO(BODY)), True, id="a file"),
        pytest.param(lambda: FileResponse(BytesIO(b"")), True, id="an empty file"),
        pytest.param(lambda: HttpResponse(BODY), False, id="a page"),
        pytest.param(lambda: StreamingHttpResponse(iter([BODY])), False, id="a stream of unknown length"),
        pytest.param(
            lambda: StreamingHttpResponse(iter([BODY]), headers={"Content-Length": "900000000"}), False, id="a huge one"
        ),
    ],
)
def test_files_are_returned_whole(response: Any, is_whole: bool) -> None:
    """A list is the form that the server takes without occupying the thread until the client has read it."""
    made = response()
    returned = return_files_whole(lambda environ, start_response: made)({}, None)
    assert isinstance(returned, list) == is_whole
    assert made.closed == is_whole
    assert b"".join(returned) in (BODY, b"")
