"""Receives a request's body before the request is forwarded, so that no thread of the site waits for a client.

A body up to the API's limit is kept in memory. Only staff send larger ones (seating plans, posters): to the admin site,
with the session of an active staff account that may create plans or events. Their body goes to a temporary file; a
process receives few at once, and one of each account. Only they send multipart forms, of any size, since these are
expensive to parse.
"""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import IO

from django.conf import settings
from django.contrib.auth import get_user
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest
from django.http.cookie import parse_cookie

from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.request import ClientDisconnected, Receive, Scope
from apps.kernel.http import client_address
from apps.kernel.http.problems import Busy, TooLarge, WrongContentType, from_exception
from apps.kernel.http.sessions import SessionStore

# The API's limit (DATA_UPLOAD_MAX_MEMORY_SIZE). Checked here, because the site would respond and close the connection
# while the client is still sending, and the client would not see the response.
BODY_BYTES_MAX = 256 * 1024
# The largest upload: a seating plan (SEATING_PLAN_FILE_MAX_BYTES) in its form.
UPLOAD_BYTES_MAX = 72 * 1024 * 1024
UPLOAD_PATH = "/admin/"
SMALL_BYTES_MAX = 32 * 1024
LARGER_BODIES_MAX = 400
"""Bodies of more than SMALL_BYTES_MAX, other than uploads, that a process of `web` keeps in memory: 100 MiB."""
UPLOADS_MAX = 4
"""Uploads that a process of `web` receives at once, each of another account."""
UPLOAD_PERMISSIONS = ("events.add_seatingplan", "events.add_event", "events.change_event")
RETRY_SECONDS = 10
_READ_BYTES = 256 * 1024
_SESSION_KEY = re.compile(r"[a-z0-9]{8,40}")


class LargerBodies:
    """The number of larger bodies in the memory of this process."""

    count = 0


class RequestBody:
    """The request's body as it arrives, and whether its client has gone."""

    def __init__(self, scope: Scope, receive: Receive, larger: LargerBodies) -> None:
        self.is_gone = False
        self.is_answered = False
        self._scope = scope
        self._receive = receive
        self._larger = larger
        self._is_counted = False
        self._leave: Callable[[], object] | None = None
        self._watcher: asyncio.Task[None] | None = None
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self.declared = int(headers[b"content-length"]) if headers.get(b"content-length", b"").isdigit() else None
        self._complete = not self.declared and b"transfer-encoding" not in headers
        self.is_large = (self.declared or 0) > BODY_BYTES_MAX
        # Parsers ignore case, spaces and parameters, and some decode names with an asterisk.
        self.is_multipart = any(
            b"multipart" in value.lower() for name, value in scope["headers"] if name == b"content-type"
        )

    async def gather(self) -> bytes | None:
        """Return the whole body; None if the request has none. Raises TooLarge, ClientDisconnected, and Busy if too
        many larger bodies are in memory."""
        if self._complete:
            return None
        chunks, size = [], 0
        async for chunk in self.chunks(BODY_BYTES_MAX):
            chunks.append(chunk)
            size += len(chunk)
            if size > SMALL_BYTES_MAX and not self._is_counted:
                if self._larger.count >= LARGER_BODIES_MAX:
                    raise Busy("Too many large requests are being received.", retry_after_seconds=RETRY_SECONDS)
                self._larger.count += 1
                self._is_counted = True
        return b"".join(chunks)

    async def chunks(self, bytes_max: int) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises TooLarge and ClientDisconnected."""
        size = 0
        while not self._complete:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._gone()
                raise ClientDisconnected
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > bytes_max:
                raise TooLarge
            self._complete = not message.get("more_body", False)
            if chunk:
                yield chunk

    def watch(self, leave: Callable[[], object]) -> None:
        """Call `leave` if the client goes away before the response. The body is complete: the only message that can
        still come is the disconnect."""
        self._leave = leave
        self._watcher = asyncio.create_task(self._watch())

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While the block runs, a client that goes away only sets `is_gone`. Raises ClientDisconnected after the block
        if it has gone."""
        leave, self._leave = self._leave, None
        try:
            yield
        finally:
            self._leave = leave
        if self.is_gone:
            raise ClientDisconnected

    def close(self) -> None:
        """Stop watching, once the request is answered or given up."""
        self._leave = None
        if self._watcher is not None:
            self._watcher.cancel()
        if self._is_counted:
            self._larger.count -= 1

    def abandon(self) -> None:
        """End the request as if its client had gone."""
        self._gone()

    async def _watch(self) -> None:
        while not self.is_gone:
            if (await self._receive())["type"] == "http.disconnect":
                self._gone()

    def _gone(self) -> None:
        self.is_gone = self._complete = True
        if self._leave is not None:
            self._leave()


class Uploads:
    """The uploads of staff that this process is receiving."""

    def __init__(self) -> None:
        self._accounts: set[int] = set()

    @asynccontextmanager
    async def receive(self, scope: Scope, body: RequestBody) -> AsyncIterator[IO[bytes]]:
        """Receive the upload into a temporary file, which exists until the end of the context. Raises TooLarge if the
        body is no upload of staff, Busy while another one of the account or too many others are received, and
        ClientDisconnected."""
        account_id = None if (body.declared or 0) > UPLOAD_BYTES_MAX else await _find_uploader(scope)
        if account_id is None:
            raise TooLarge
        if account_id in self._accounts or len(self._accounts) >= UPLOADS_MAX:
            raise Busy("Other files are being uploaded.", retry_after_seconds=RETRY_SECONDS)
        self._accounts.add(account_id)
        try:
            with tempfile.TemporaryFile() as file:
                async for chunk in body.chunks(UPLOAD_BYTES_MAX):
                    await asyncio.to_thread(file.write, chunk)
                file.seek(0)
                yield file
        finally:
            self._accounts.discard(account_id)


async def require_uploader(scope: Scope) -> None:
    """Check that the request may have a multipart form. Raises WrongContentType, and Busy without the database."""
    if await _find_uploader(scope) is None:
        raise WrongContentType("Send the form as the page does.")


async def _find_uploader(scope: Scope) -> int | None:
    if not scope["path"].startswith(UPLOAD_PATH):
        return None
    try:
        thread_pool.set_client(client_address.address_from_scope(scope))
        return await thread_pool.run_for_client(find_uploader, _session_key(scope))
    except (OperationalError, InterfaceError) as error:
        raise from_exception(error) or Busy from error


async def read_file(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield the rest of the file."""
    while chunk := await asyncio.to_thread(file.read, _READ_BYTES):
        yield chunk


class _ReadOnlySession(SessionStore):
    """A session that `get_user` neither ends nor renews: the client would not get the new key."""

    key_salt = SessionStore().key_salt  # Django derives it from the name of the class.

    def flush(self) -> None: ...

    def cycle_key(self) -> None: ...


def find_uploader(key: str) -> int | None:
    """Return the active staff account that has this session and may send files; None for any other session. Blocks."""
    request = HttpRequest()
    request.session = _ReadOnlySession(key)
    user = get_user(request)
    if not user.is_active or not getattr(user, "is_staff", False) or not any(map(user.has_perm, UPLOAD_PERMISSIONS)):
        return None
    account_id: int = user.pk
    return account_id


def _session_key(scope: Scope) -> str:
    cookies = b"; ".join(value for name, value in scope["headers"] if name == b"cookie")
    key = parse_cookie(cookies.decode("latin-1")).get(settings.SESSION_COOKIE_NAME, "")
    return key if _SESSION_KEY.fullmatch(key) else ""
