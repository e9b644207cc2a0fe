"""The API describes itself, and docs/api.md leaves nothing out."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import Client

from apps.kernel.http import problems
from apps.orders.errors import StaffProblem
from tests.support.servers import CHECKOUT
from ticketing.server import http_protocol

DOCS = CHECKOUT / "docs" / "api.md"


@pytest.fixture
def schema(client: Client, db: None) -> dict[str, Any]:
    response = client.get("/api/schema")
    assert response.status_code == 200
    return dict(yaml.safe_load(response.content))


def test_the_schema_is_valid_and_nothing_in_it_is_guessed(tmp_path: Path, db: None) -> None:
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "schema.yml"))


def test_every_call_of_the_schema_stands_in_the_docs(schema: dict[str, Any]) -> None:
    documented = {
        (method, re.sub(r"\{\w+\}", "{}", path))
        for method, path in re.findall(r"\| `(GET|POST|DELETE) (/api/[^`?\s]*)", DOCS.read_text())
    }
    described = {
        (method.upper(), re.sub(r"\{\w+\}", "{}", path)) for path, calls in schema["paths"].items() for method in calls
    }
    assert described == documented


def every_problem(kind: type[problems.Problem] = problems.Problem) -> Iterator[type[problems.Problem]]:
    for inner in kind.__subclasses__():
        yield inner
        yield from every_problem(inner)


def test_every_refusal_stands_in_the_docs_with_its_status() -> None:
    rows = {(int(status), kind) for status, kind in re.findall(r"\| (\d{3}) \| `([\w-]+)`", DOCS.read_text())}
    ours = [kind for kind in every_problem() if kind.__module__.startswith(("apps", "ticketing"))]
    # What only staff are shown, on their own pages and by commands, is no part of the API.
    public = [kind for kind in ours if ".staff." not in kind.__module__ and not issubclass(kind, StaffProblem)]
    raised = {(kind.status, kind.type) for kind in public}
    assert (raised | set(said_by_the_server())) - {(500, "fault")} == rows


def said_by_the_server() -> Iterator[tuple[int, str]]:
    """What is refused before there is a request: status and type."""
    for answer in (
        http_protocol.MALFORMED,
        http_protocol.TOO_LARGE,
        http_protocol.TOO_SLOW,
        http_protocol.HEADERS_TOO_LARGE,
        http_protocol.FULL,
    ):
        document = json.loads(answer.partition(b"\r\n\r\n")[2])
        yield document["status"], document["type"]


def test_every_call_has_a_name_a_group_and_an_answer(schema: dict[str, Any]) -> None:
    for path, calls in schema["paths"].items():
        for method, call in calls.items():
            assert call["operationId"], path
            assert call["tags"], path
            assert call.get("summary"), f"{method} {path}"
            assert any(status.startswith("2") for status in call["responses"]), path


def test_the_docs_page_brings_everything_from_here(client: Client, db: None) -> None:
    response = client.get("/api/docs")
    page = response.content.decode()
    assert response.status_code == 200
    assert "'unsafe-inline'" not in response.headers["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)", page), "an inline script would be blocked"
    assert not re.search(r"<style|\sstyle=|https?://", page)
    for source in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
        assert finders.find(source.removeprefix("/static/")), source
