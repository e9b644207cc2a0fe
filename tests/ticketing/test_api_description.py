"""The OpenAPI document is valid, and docs/api.md covers all of it."""

import importlib
import json
import pkgutil
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import Client
from django.utils.translation import trans_real
from drf_spectacular.generators import SchemaGenerator

import apps
import ticketing
from apps.kernel.http import problems
from tests.support.api_client import assert_problem
from tests.support.servers import CHECKOUT
from ticketing.server import http_protocol

DOCS = CHECKOUT / "docs" / "api.md"


@pytest.fixture
def schema(client: Client, db: None) -> dict[str, Any]:
    response = client.get("/api/schema")
    assert response.status_code == 200
    return dict(yaml.safe_load(response.content))


def test_the_schema_is_valid_without_warnings(tmp_path: Path, db: None) -> None:
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "schema.yml"))


def test_the_schema_is_generated_once_for_any_number_of_requests(client: Client, monkeypatch: Any, db: None) -> None:
    """Otherwise a client could occupy the site's threads with a few requests a second, or its memory with languages."""
    generate, generated = SchemaGenerator.get_schema, []

    def counted(*given: Any, **how: Any) -> Any:
        generated.append(how)
        return generate(*given, **how)

    monkeypatch.setattr(SchemaGenerator, "get_schema", counted)
    versions, languages = ("version=2", "version=%0D%0AX-Y:%20z"), ("lang=de", "lang=%00", "lang=xx")
    queries = ("", "format=json", "format=yaml", *versions, *languages)
    responses = [client.get(f"/api/schema?{query}") for query in queries * 3]
    assert {response.status_code for response in responses} == {200}
    assert len({response.content for response in responses}) == 2, "YAML and JSON"
    assert len(generated) <= 2
    assert "xx" not in trans_real._translations


def test_every_operation_of_the_schema_is_in_the_docs(schema: dict[str, Any]) -> None:
    documented = {
        (method, re.sub(r"\{\w+\}", "{}", path))
        for method, path in re.findall(r"\| `(GET|POST|PUT|DELETE|PATCH) (/api/[^`?\s]*)", DOCS.read_text())
    }
    described = {
        (method.upper(), re.sub(r"\{\w+\}", "{}", path)) for path, calls in schema["paths"].items() for method in calls
    }
    assert described == documented


def every_problem(kind: type[problems.Problem] = problems.Problem) -> Iterator[type[problems.Problem]]:
    for inner in kind.__subclasses__():
        yield inner
        yield from every_problem(inner)


def test_every_problem_type_is_in_the_docs_with_its_status() -> None:
    rows = {(int(status), kind) for status, kind in re.findall(r"\| (\d{3}) \| `([\w-]+)`", DOCS.read_text())}
    for package in (apps, ticketing):  # A problem counts from the import of its module on.
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    own_types = [kind for kind in every_problem() if kind.__module__.startswith(("apps", "ticketing"))]
    # Problems shown only to staff, on admin pages and by commands, are not part of the API.
    public = [
        kind for kind in own_types if ".staff." not in kind.__module__ and not issubclass(kind, problems.StaffProblem)
    ]
    raised = {(kind.status, kind.type) for kind in public}
    assert (raised | set(server_refusals())) - {(500, "fault")} == rows


def server_refusals() -> Iterator[tuple[int, str]]:
    """Return status and type of the refusals that the server sends before there is a request."""
    for response in (
        http_protocol.MALFORMED,
        http_protocol.TOO_LARGE,
        http_protocol.TOO_SLOW,
        http_protocol.HEADERS_TOO_LARGE,
        http_protocol.FULL,
    ):
        document = json.loads(response.partition(b"\r\n\r\n")[2])
        yield document["status"], document["type"]


def test_every_operation_has_an_id_a_tag_and_a_success_response(schema: dict[str, Any]) -> None:
    for path, calls in schema["paths"].items():
        for method, call in calls.items():
            assert call["operationId"], path
            assert call["tags"], path
            assert call.get("summary"), f"{method} {path}"
            assert any(status.startswith("2") for status in call["responses"]), path


def test_every_address_refuses_other_methods_and_names_its_own(schema: dict[str, Any], client: Client) -> None:
    for path, calls in schema["paths"].items():
        address = path.replace("{reservation_id}", str(uuid.UUID(int=7))).replace("{order_id}", str(uuid.UUID(int=7)))
        address = re.sub(r"\{(receipt_handle|transfer_id)\}", str(uuid.UUID(int=7)), address)
        for method in {"PUT", "PATCH", "TRACE", "BREW"} - {call.upper() for call in calls}:
            response = client.generic(method, re.sub(r"\{\w+\}", "concert", address))
            assert_problem(response, 405, "method-not-allowed")
            allowed = {one.lower() for one in response.headers["Allow"].split(", ")}
            assert allowed - {"head", "options"} == set(calls), path


def test_every_refusal_is_described_as_a_problem_document(schema: dict[str, Any]) -> None:
    for path, calls in schema["paths"].items():
        for method, call in calls.items():
            refusals = {status: one for status, one in call["responses"].items() if status >= "400"}
            assert {"400", "406", "429", "503"} <= refusals.keys(), f"{method} {path}"
            assert ("404" in refusals) == ("{" in path), f"{method} {path}"
            assert ("401" in refusals) >= ("security" in call), f"{method} {path}"
            for one in refusals.values():
                assert list(one["content"]) == ["application/problem+json"]
                assert re.search(r"`[a-z-]+`", one["description"]), f"{method} {path}: no type is named"


def test_every_request_body_has_no_members_but_the_described_ones(schema: dict[str, Any]) -> None:
    components = schema["components"]["schemas"]
    bodies = [name for name in components if name.endswith("Request") and "properties" in components[name]]
    assert len(bodies) > 5
    assert [name for name in bodies if components[name].get("additionalProperties") is not False] == []


def test_the_docs_page_loads_everything_from_this_site(client: Client, db: None) -> None:
    response = client.get("/api/docs")
    page = response.content.decode()
    assert response.status_code == 200
    assert "'unsafe-inline'" not in response.headers["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)", page), "an inline script would be blocked"
    assert not re.search(r"<style|\sstyle=|https?://", page)
    for part in ('class="site-header"', 'class="site-footer"', "<noscript>", 'content="light dark"'):
        assert part in page
    for source in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
        assert finders.find(source.removeprefix("/static/").partition("#")[0]), source
