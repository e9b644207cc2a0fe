"""Request smuggling: for every odd way to frame a body, `web` and the site's server read the same requests.

Each attack hides a request for a canary where the two might disagree about the end of a body. The site records what it
receives. `web` must have forwarded each of these requests itself, which its token shows; the client must get their
responses in the same order, until it is disconnected; and the client of the next request must get its own response.
"""

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from apps.kernel.http.client_address import FORWARDED_BY_HEADER
from tests.processes.server.site_processes import site
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, web

HOST = "localhost"
FORWARDED_BY = "HTTP_" + FORWARDED_BY_HEADER.upper().replace("-", "_")
THREADS = 200
SECONDS_MAX = 60
"""Above the ten seconds after which `web` cuts an incomplete request."""

# The headers that frame the body; LENGTH is the length of the whole body that follows.
FRAMINGS = (
    "Content-Length: LENGTH", "Content-Length: 0", "Content-Length: 5", "Content-Length: +5", "Content-Length: 0x5",
    "Content-Length: 5, 5", "Content-Length: 5,LENGTH", "Content-Length: 5\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: LENGTH", "Content-Length: LENGTH\r\nContent-Length: 5",
    "Content-Length : 5", "Content-Length\t: 5", " Content-Length: 5", "Content-Length:\r\n 5", "Content_Length: 5",
    "Content-Length: 5\r\nContent_Length: LENGTH", "Content-Length: 00005", "Content-Length: 5 ",
    "Content-Length: \x0b5",
    "Content-Length: LENGTH\r\nConnection: content-length",
    "Content-Length: LENGTH\r\nConnection: close, Content-Length",
    "Content-Length: LENGTH\r\nConnection: host", "Content-Length: LENGTH\r\nConnection: transfer-encoding",
    "Content-Length: LENGTH\nX-A: b", "Content-Length: LENGTH\r\nX-A: a\rContent-Length: 5",
    "Transfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Content-Length: LENGTH\r\nTransfer-Encoding: chunked", "Transfer-Encoding: CHUNKED", "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity, chunked", "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", "Transfer-Encoding : chunked",
    "Transfer-Encoding:\tchunked", "Transfer-Encoding: \x0bchunked", "Transfer-Encoding:\r\n chunked",
    'Transfer-Encoding: "chunked"', "Transfer-Encoding: chunked;a=b", "Transfer_Encoding: chunked",
    "Transfer_Encoding: chunked\r\nContent-Length: LENGTH", "X: a\r\n\tTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nConnection: transfer-encoding",
    "Content-Length: LENGTH\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    "Content-Length: LENGTH\r\nExpect: 100-continue", "Content-Length: 5\r\nExpect: 100-continue",
    "Content-Length: LENGTH\r\nUpgrade: websocket\r\nConnection: Upgrade",
)  # fmt: skip
# The body; CANARY is a whole request for the canary.
BODIES = (
    "CANARY", "helloCANARY", "0\r\n\r\nCANARY", "5\r\nhello\r\n0\r\n\r\nCANARY", "5;x=\r\nhello\r\n0\r\n\r\nCANARY",
    "5\nhello\n0\n\nCANARY", "0x5\r\nhello\r\n0\r\n\r\nCANARY", "+5\r\nhello\r\n0\r\n\r\nCANARY",
    "00000000000000005\r\nhello\r\n0\r\n\r\nCANARY", "100000000000000005\r\nhello\r\n0\r\n\r\nCANARY",
    "5\r\nhelloXX0\r\n\r\nCANARY", "5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\nCANARY",
    "5;a=\"\r\nhello\r\n0\r\n\r\n\"CANARY",
)  # fmt: skip
METHODS = ("POST", "GET", "DELETE")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site") / "requests"


@pytest.fixture(scope="module")
def server(record: Path) -> Iterator[Web]:
    with (
        site("tests.processes.server.request_recorder:application", RECORD_FILE=str(record), SITE_THREADS="8") as port,
        web(port, WEB_KEEP_ALIVE_SECONDS="1") as served,
    ):
        yield served


def attack(number: int, method: str, framing: str, body: str) -> bytes:
    canary = f"GET /{number}/canary HTTP/1.1\r\nHost: {HOST}\r\nX-Canary: {number}\r\n\r\n"
    content = body.replace("CANARY", canary)
    lines = framing.replace("LENGTH", str(len(content)))
    return f"{method} /{number}/attack HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n\r\n{content}".encode("latin-1")


def speak(server: Web, data: bytes) -> bytes:
    """Send the bytes, and return everything received until the server closes the connection."""
    received = b""
    with server.connect() as client:
        client.settimeout(SECONDS_MAX)
        try:
            client.sendall(data)
            while chunk := client.recv(65_536):
                received += chunk
        except TimeoutError:
            raise AssertionError(f"neither answered nor disconnected: {data!r}") from None
        except OSError:
            pass  # Disconnected.
    return received


def paths_in(received: bytes) -> list[str]:
    """Return the paths in the site's responses. `web` itself answers with problem documents of one line."""
    lines = [line for line in received.split(b"\n") if line.startswith(b'{"method"')]
    return [json.loads(line)["path"] for line in lines]


def recorded(record: Path) -> list[dict[str, Any]]:
    """Return the requests that `web` has forwarded."""
    requests = [json.loads(line) for line in record.read_text().splitlines()]
    return [request for request in requests if request["path"] != "/healthz"]


def test_the_site_receives_the_requests_that_the_client_gets_responses_for(server: Web, record: Path) -> None:
    combinations = list(enumerate(itertools.product(METHODS, FRAMINGS, BODIES)))
    with ThreadPoolExecutor(THREADS) as threads:
        received = list(
            threads.map(lambda one: speak(server, attack(one[0], *one[1])), combinations, timeout=10 * WAIT_SECONDS_MAX)
        )
    at_site: dict[int, list[str]] = {}
    for request in recorded(record):
        at_site.setdefault(int(request["path"].split("/")[1]), []).append(request["path"])
        assert request["headers"]["HTTP_HOST"] == HOST
        assert request["headers"].get(FORWARDED_BY), (request, "hidden from `web`")
        if "CANARY" in str(request["headers"]):
            assert request["path"].endswith("/canary"), "a header of the canary arrived with another request"
    wrong = {
        (number, *how): (at_site.get(number, []), paths_in(response))
        for (number, how), response in zip(combinations, received, strict=True)
        if at_site.get(number, [])[: len(paths_in(response))] != paths_in(response)
    }
    assert wrong == {}
    assert not [response[:300] for response in received if b"HTTP/1.1 500" in response]
    hidden = {how for number, how in combinations if how[0] == "GET" and f"/{number}/canary" in at_site.get(number, [])}
    assert hidden <= {how for _, how in combinations if is_bodiless(how[1])}, "a GET with a body is refused"
    probe(server)


def is_bodiless(framing: str) -> bool:
    """Whether these headers declare no body: the canary is then a request of its own, and allowed."""
    names = [line.split(":")[0].strip().lower() for line in framing.replace("\r\n ", " ").split("\r\n")]
    return framing == "Content-Length: 0" or not {"content-length", "transfer-encoding"} & set(names)


def probe(server: Web) -> None:
    """Every further request gets its own response."""
    for number in range(50):
        connection = HTTPConnection("127.0.0.1", server.port, timeout=WAIT_SECONDS_MAX)
        connection.request("POST", f"/probe/{number}", b"x" * number)
        answer = json.loads(connection.getresponse().read())
        assert (answer["path"], len(answer["body"])) == (f"/probe/{number}", number)
        connection.close()


@pytest.mark.parametrize(
    "lines",
    [
        "X-Forwarded-For: 6.6.6.6",
        "X_Forwarded_For: 6.6.6.6",
        "X-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6",
        "x-forwarded_for: 6.6.6.6\r\nX_FORWARDED-FOR: 6.6.6.6",
        "X_Forwarded_For: 6.6.6.6\r\nConnection: x-forwarded-for",
        f"Connection: x-forwarded-for, {FORWARDED_BY_HEADER}, host",
        f"{FORWARDED_BY_HEADER.replace('-', '_')}: mine\r\n{FORWARDED_BY_HEADER}: mine",
        "Forwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX_Real_IP: 6.6.6.6",
        "X_Forwarded_Proto: https\r\nX_Forwarded_Host: evil.example\r\nX-Forwarded-Proto: https",
    ],
)
def test_both_spellings_of_forwarded_headers_are_harmless(server: Web, record: Path, lines: str) -> None:
    speak(server, f"GET /forwarded HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n\r\n".encode())
    headers = recorded(record)[-1]["headers"]
    assert headers["HTTP_X_FORWARDED_FOR"] == "127.0.0.1"
    assert headers["HTTP_X_FORWARDED_PROTO"] == "http"
    assert (headers["HTTP_HOST"], headers["HTTP_X_FORWARDED_HOST"]) == (HOST, HOST)
    assert headers[FORWARDED_BY] not in ("", "mine")
    assert "6.6.6.6" not in str(headers)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("path", ["/healthz", "/streamed/1", "/sized/1", "/api/events/nowhere/sections"])
def test_a_client_of_http_1_0_gets_no_chunks(server: Web, method: str, path: str) -> None:
    """nginx, for example, speaks HTTP/1.0 unless it is configured otherwise."""
    request = f"{method} {path} HTTP/1.0\r\nHost: {HOST}\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n"
    head, separator, body = speak(server, request.encode()).partition(b"\r\n\r\n")
    assert separator
    assert not head.startswith(b"HTTP/1.1 100")
    assert b"transfer-encoding" not in head.lower()
    assert body == b"" if method == "HEAD" else json.loads(body), "one document, and nothing around it"
