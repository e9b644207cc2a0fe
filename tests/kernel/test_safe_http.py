"""HTTP requests to addresses chosen by others: never into our own network, bounded in time and in size."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from apps.kernel import safe_http
from apps.kernel.safe_http import AddressPolicy, AddressRefused, RequestFailed
from tests.support.webhook_receiver import WebhookReceiver, run_receiver

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EVERYTHING = AddressPolicy(plain_http=True, private_addresses=True)


@pytest.fixture
def listener() -> Iterator[WebhookReceiver]:
    with run_receiver() as one:
        yield one


def post(url: str, allowed: AddressPolicy = EVERYTHING, **changes: Any) -> safe_http.Answer:
    given = {"seconds_max": 10.0, "answer_bytes_max": 10, **changes}
    return safe_http.request("POST", url, {"X-Of": "us"}, b"{}", allowed=allowed, **given)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/", "ftp://example.com/", "example.com", "https://", "https:///path", "https://me@example.com/",
        "https://me:word@example.com/", "https://example.com:0/", "https://example.com:99999/", "https://[::1/",
        "https://exa mple.com/", "https://example.com/\r\nX: y", "https://" + "a" * 600, "https://127.0.0.1/",
        "https://10.1.2.3/", "https://169.254.169.254/latest", "https://192.168.0.1/", "https://0.0.0.0/",
        "https://[::1]/", "https://[fd00::1]/", "https://[fe80::1]/", "https://[::ffff:127.0.0.1]/",
        "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://224.0.0.1/", "https://100.64.0.1/",
        "https://[64:ff9b:1::7f00:1]/", "https://[::ffff:0:7f00:1]/", "https://[::7f00:1]/", "https://[fec0::1]/",
        "https://[3fff::1]/", "https://[5f00::1]/", "https://192.88.99.1/", "https://192.0.0.8/",
    ],
)  # fmt: skip
def test_unsafe_addresses_are_refused(url: str) -> None:
    with pytest.raises(AddressRefused):
        safe_http.check_url(url, AddressPolicy())


@pytest.mark.parametrize(
    "url", ["https://example.com", "https://example.com:8443/a?b=c", "https://1.1.1.1/", "https://[2606:4700::1111]/"]
)
def test_public_https_addresses_are_allowed(url: str) -> None:
    assert safe_http.check_url(url, AddressPolicy()).scheme == "https"


def test_a_name_that_resolves_into_our_own_network_is_refused_before_anything_is_sent(
    listener: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused even if only one of its addresses is private, since any of them could be used."""
    port = listener.url.split(":")[2].split("/")[0]

    def resolve(*args: Any, **more: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, int(port))) for address in ("1.1.1.1", "127.0.0.1")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(AddressRefused, match="not a public address"):
        post(f"http://hook.example:{port}/", AddressPolicy(plain_http=True))
    assert listener.received == []


def test_the_name_is_resolved_once_and_the_connection_goes_to_the_checked_address(
    listener: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check and the connection the name could start to point elsewhere; it is not resolved again."""
    port, resolved = int(listener.url.split(":")[2].split("/")[0]), []

    def resolve(host: str, *more: Any, **options: Any) -> list[Any]:
        resolved.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert post(f"http://hook.example:{port}/").status == 204
    # The system's connect resolves a numeric address too, and gets the address itself.
    assert resolved in (["hook.example"], ["hook.example", "127.0.0.1"])
    assert listener.received[0][0]["Host"] == f"hook.example:{port}"


def test_a_slow_name_server_delays_a_request_up_to_a_deadline_and_few_at_once(
    listener: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, resolve = threading.Event(), socket.getaddrinfo

    def wait(host: str, *more: Any, **options: Any) -> list[Any]:
        assert host != "slow.example" or answers.wait(20)
        return resolve("127.0.0.1", *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    monkeypatch.setattr(safe_http, "LOOK_UP_SECONDS_MAX", 0.01)
    monkeypatch.setattr(safe_http, "_look_ups", threading.BoundedSemaphore(2))
    port = listener.url.split(":")[2].split("/")[0]
    try:
        for _ in range(2):
            with pytest.raises(RequestFailed, match=r"not known after 0\.01 s"):
                post(f"http://slow.example:{port}/")
        with pytest.raises(RequestFailed, match="too many"):
            post(f"http://slow.example:{port}/")
    finally:
        answers.set()
    monkeypatch.setattr(safe_http, "LOOK_UP_SECONDS_MAX", 20)
    assert safe_http._look_ups.acquire(timeout=20), "a name was resolved"
    safe_http._look_ups.release()
    assert post(f"http://quick.example:{port}/").status == 204


def test_body_and_headers_are_sent_and_the_response_is_read_up_to_a_limit(listener: WebhookReceiver) -> None:
    listener.status, listener.body = 200, b"0123456789and a lot more"
    assert post(listener.url) == safe_http.Answer(200, b"0123456789")
    ((headers, body),) = listener.received
    assert (headers["X-Of"], body) == ("us", b"{}")


def test_a_redirect_is_returned_and_not_followed(listener: WebhookReceiver) -> None:
    with run_receiver() as other:
        listener.status, listener.headers = 307, {"Location": other.url}
        assert post(listener.url).status == 307
        assert other.received == []


def test_a_server_that_does_not_respond_in_time_is_abandoned(listener: WebhookReceiver) -> None:
    listener.silent = threading.Event()
    with pytest.raises(RequestFailed):
        post(listener.url, seconds_max=0.2)


@contextmanager
def raw_server(*parts: bytes, keeps_open: threading.Event | None = None) -> Iterator[str]:
    """Yield the URL of a server that reads one request, sends these parts, and closes the connection; with
    `keeps_open` only after the event, or ten seconds."""

    def answer() -> None:
        connected, _ = server.accept()
        with connected, suppress(OSError):  # The client may have closed the connection.
            connected.recv(4_096)
            for part in parts:
                connected.sendall(part)
            if keeps_open is not None:
                keeps_open.wait(10)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        thread.join(timeout=20)


def test_a_closed_port_and_a_server_of_another_protocol_fail() -> None:
    with raw_server(b"220 mail.example ESMTP\r\n") as url, pytest.raises(RequestFailed):
        post(url)
    with pytest.raises(RequestFailed):
        post(url)
    with raw_server() as url, pytest.raises(RequestFailed):
        post(url)


NESTED_PARTS = b"".join(
    b"Content-Type: multipart/mixed; boundary=b%d\r\r--b%d\r" % (number, number) for number in range(900)
)


@pytest.mark.parametrize(
    "headers",
    [
        b"X: y\r\n" * 10_000,
        NESTED_PARTS + b"\nX: " + b"\r" * 60_000 + b"\r\n",
        b"A:" + b" " * 32_000 + b"\0\r\n",
        b"A:" + b" " * 32_000 + b"x" + b" " * 700 + b"\0\r\n",
    ],
    ids=["many", "parts", "blanks", "blanks around"],
)
def test_an_odd_head_is_refused_with_little_work(headers: bytes) -> None:
    """http.client parsed the second one as a mail of 900 nested parts, for seconds; h11 tried for two seconds to match
    the third with a regular expression."""
    assert work_of_refusal(headers) < 50 * work_of_refusal(b"A: " + b"x" * 60_000 + b"\r\n")


def work_of_refusal(headers: bytes) -> float:
    """Return the processor time that this thread takes to refuse a response with these headers."""
    with raw_server(b"HTTP/1.1 200 OK\r\n", headers, b"\r\n") as url:
        began = time.thread_time()
        with pytest.raises(RequestFailed):
            post(url)
        return time.thread_time() - began


def test_interim_responses_without_end_are_refused() -> None:
    with raw_server(b"HTTP/1.1 100 Continue\r\n\r\n" * 3_000) as url, pytest.raises(RequestFailed, match="too long"):
        post(url)


@pytest.mark.parametrize(
    "body",
    [b"1;" + b" " * 60_000 + b"\nx", b"1;" + b"x" * 60_000 + b"\r\nx\r\n", b"zz\r\n"],
    ids=["LF", "long", "size"],
)
def test_odd_chunks_end_the_body(body: bytes) -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", body) as url:
        assert post(url) == safe_http.Answer(200, b"")


def test_a_switch_of_protocols_fails() -> None:
    head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    with raw_server(head) as url, pytest.raises(RequestFailed):
        post(url)


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    with raw_server(b"HTTP/1.0 200 OK\r\n\r\n", b"fo", b"ur") as url:
        assert post(url) == safe_http.Answer(200, b"four")


def test_bytes_after_the_response_are_ignored() -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfourHTTP/1.1 500 No\r\n\r\n") as url:
        assert post(url) == safe_http.Answer(200, b"four")


def test_a_body_that_ends_early_or_at_the_deadline_is_returned_as_far_as_it_was_read() -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"four") as url:
        assert post(url) == safe_http.Answer(200, b"four")
    over = threading.Event()
    with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour", keeps_open=over) as url:
        assert post(url, seconds_max=0.5) == safe_http.Answer(200, b"four", is_late=True)
        over.set()


def test_interim_responses_are_skipped() -> None:
    with raw_server(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3, b"HTTP/1.1 204 No Content\r\n\r\n") as url:
        assert post(url) == safe_http.Answer(204, b"")


def test_a_chunked_body_is_read_up_to_the_limit() -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 1_000) as url:
        assert post(url) == safe_http.Answer(200, b"x" * 10)


def test_tls_is_verified(listener: WebhookReceiver) -> None:
    with pytest.raises(RequestFailed):
        post(listener.url.replace("http://", "https://"))


@contextmanager
def tls_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[ssl.SSLSocket], None], *, tickets: int = 2
) -> Iterator[str]:
    """Accept one TLS connection, with a certificate that requests trust, and let `act` answer; yield the URL."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    write_certificate(key, certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.num_tickets = tickets

    def serve(listening: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(listening.accept()[0], server_side=True) as connected:
            act(connected)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        yield f"https://localhost:{listening.getsockname()[1]}/"
        thread.join(10)
        assert not thread.is_alive()


def write_certificate(key_file: Path, certificate_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
    certificate_file.write_bytes(certificate.public_bytes(Encoding.PEM))


def read_request(connected: ssl.SSLSocket) -> bytes:
    received = b""
    while not received.endswith(b"{}"):
        received += connected.recv(65_536)
    return received


@pytest.mark.parametrize("size", [2, 200_000])
@pytest.mark.parametrize("ends_well", [True, False])
def test_a_response_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, size: int, ends_well: bool) -> None:
    """`ends_well`: with the message that TLS has for it."""

    def answer(connected: ssl.SSLSocket) -> None:
        assert b"X-Of: us" in read_request(connected)
        connected.sendall(b"HTTP/1.1 201 Created\r\n\r\n" + b"x" * size)
        if ends_well:
            connected.unwrap()

    with tls_server(tmp_path, monkeypatch, answer) as url:
        answered = post(url, answer_bytes_max=size + 1)
    assert (answered.status, len(answered.body), answered.is_late) == (201, size, False)


def test_no_receiver_chooses_the_modulus_of_a_key_exchange() -> None:
    names = [cipher["name"] for cipher in safe_http._tls_context().get_ciphers()]
    assert any(name.startswith("ECDHE-") for name in names)
    assert not [name for name in names if name.startswith("DHE-")]


def test_records_without_data_are_not_read_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may send any number of session tickets. OpenSSL reads them in one call, which no deadline ends."""
    with (
        tls_server(tmp_path, monkeypatch, lambda connected: connected.sendall(OK), tickets=5_000) as url,
        pytest.raises(RequestFailed, match="no data"),
    ):
        post(url)


def test_a_handshake_that_does_not_end_is_late(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        begun = time.monotonic()
        with pytest.raises(RequestFailed, match="timed out"):
            post(f"https://localhost:{listening.getsockname()[1]}/", seconds_max=0.3)
        assert time.monotonic() - begun < 10
