"""A client of the public API, as strangers write one: nothing but addresses, headers and JSON."""

import json
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

PROBLEM = "application/problem+json"


@dataclass
class Api:
    """Calls without a cookie jar to speak of: whoever wants to be somebody sends a token."""

    client: Client = field(default_factory=Client)

    def call(self, method: str, path: str, body: Any = None, *, token: str = "", key: str = "", **headers: str) -> Any:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["authorization"] = f"Bearer {token}"
        if key:
            sent["idempotency-key"] = key
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        content_type = sent.pop("content-type", "application/json")
        return self.client.generic(method, f"/api{path}", content, content_type=content_type, headers=sent)

    def get(self, path: str, **kwargs: Any) -> Any:
        return self.call("GET", path, **kwargs)

    def post(self, path: str, body: Any = None, **kwargs: Any) -> Any:
        return self.call("POST", path, body, **kwargs)

    def delete(self, path: str, **kwargs: Any) -> Any:
        return self.call("DELETE", path, **kwargs)

    def join(self, slug: str, **body: Any) -> dict[str, Any]:
        """A new visitor's place, or the one of this visitor id."""
        response = self.post(f"/events/{slug}/queue", body)
        assert response.status_code == 201, response.content
        return response.json()

    def admission(self, slug: str, **body: Any) -> str:
        return str(self.join(slug, **body)["admission_token"])


def assert_problem(response: Any, status: int, kind: str) -> dict[str, Any]:
    """The answer is this refusal, in the form every refusal has; its document."""
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == PROBLEM
    assert response.headers["Cache-Control"] == "no-store"
    document = response.json()
    assert {"type", "title", "status", "detail"} <= document.keys()
    assert (document["type"], document["status"]) == (kind, status)
    assert (status == 401) == ("WWW-Authenticate" in response.headers)
    return document
