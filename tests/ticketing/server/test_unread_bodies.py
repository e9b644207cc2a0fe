"""The site reads on to the end of what it does not want to know: the server ends a connection on which a body was left
unread, and whoever comes next on it would have no answer."""

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

import pytest
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_started
from django.db import close_old_connections

from ticketing.startup import drain_request_body

BODY = b'{"visitor_id": "' + b"a" * 100_000 + b'"}'


@pytest.fixture(autouse=True)
def _no_connection_is_looked_at() -> Iterator[None]:
    """A request begins by looking at the connection that an earlier test may have left; here there is no database."""
    request_started.disconnect(close_old_connections)
    yield
    request_started.connect(close_old_connections)


class Gone(BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise OSError("the client has gone away")


def ask(application: Any, body: Any, length: int = len(BODY)) -> str:
    """The status that an unknown address is answered with."""
    said = []

    def start_response(status: str, headers: Iterable[tuple[str, str]], exc_info: Any = None) -> None:
        said.append(status)

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
    return said[0]


def test_a_body_that_nobody_wanted_is_heard_out() -> None:
    django = WSGIHandler()
    unread, heard = BytesIO(BODY), BytesIO(BODY)
    assert (ask(django, unread), unread.tell()) == ("404 Not Found", 0), "the control: by itself it is left unread"
    assert (ask(drain_request_body(django), heard), heard.tell()) == ("404 Not Found", len(BODY))


def test_it_listens_no_longer_than_it_must() -> None:
    application = drain_request_body(WSGIHandler())
    endless, none = BytesIO(b"x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 5)), BytesIO(b"the next request")
    assert (ask(application, endless, 10**8), endless.tell()) == ("404 Not Found", settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    assert (ask(application, none, 0), none.tell()) == ("404 Not Found", 0)
    assert ask(application, Gone()) == "404 Not Found", "whoever has gone away needs no answer, and breaks nothing"
