"""Types for what the requests and responses of Django and of the fast path have in common.

Code for identities, origins and problem documents uses only these attributes, so it works with both.
"""

from collections.abc import Callable, Mapping
from http.cookies import SimpleCookie
from typing import Any, Protocol, overload


class RequestHeaders(Protocol):
    @overload
    def get(self, name: str, /) -> Any: ...
    @overload
    def get(self, name: str, default: Any, /) -> Any: ...
    def __contains__(self, name: Any, /) -> bool: ...


class AnyRequest(Protocol):
    """Django's HttpRequest, or the fast path's Request."""

    @property
    def method(self) -> str | None: ...
    @property
    def path(self) -> str: ...
    @property
    def headers(self) -> RequestHeaders: ...
    @property
    def scheme(self) -> str | None: ...
    @property
    def content_type(self) -> str | None: ...
    @property
    def COOKIES(self) -> Mapping[str, str]: ...  # noqa: N802 - Django's name.
    def is_secure(self) -> bool: ...
    def get_host(self) -> str: ...


class AnyResponse(Protocol):
    """Django's HttpResponse, or the fast path's Reply; both set cookies with the same options."""

    @property
    def cookies(self) -> SimpleCookie: ...
    @property
    def set_cookie(self) -> Callable[..., None]: ...
    @property
    def delete_cookie(self) -> Callable[..., None]: ...
