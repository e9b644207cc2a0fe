"""Multipart forms: the parts and header lines that Django does not count."""

import pytest
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, multipartparser
from django.test import RequestFactory

from ticketing.server import form_parts

FIELD = b'--x\r\nContent-Disposition: form-data; name="a"\r\nContent-Type: text/plain\r\n\r\n1\r\n'
FILE = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f.json"\r\n\r\n{}\r\n'
UNNAMED = b'--x\r\nContent-Disposition: form-data; filename="f"\r\n\r\n\r\n'
END = b"--x--\r\n"


def form(body: bytes) -> HttpRequest:
    return RequestFactory().generic("POST", "/", body, content_type="multipart/form-data; boundary=x")


def test_a_form_with_fields_and_files_is_read() -> None:
    request = form(FIELD + FILE + END)
    assert request.POST.dict() == {"a": "1"}
    assert request.FILES["f"].read() == b"{}"


@pytest.mark.parametrize(
    "body",
    [UNNAMED * (form_parts.PARTS_MAX + 1) + END, FIELD.replace(b"\r\n\r\n", b"\r\n;" * 9 + b"\r\n\r\n") + END],
    ids=["parts", "lines"],
)
def test_too_many_parts_or_lines_are_refused(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((SuspiciousOperation, multipartparser.MultiPartParserError)):
        form(body).POST  # noqa: B018
    # Django alone reads them.
    monkeypatch.setattr(multipartparser, "Parser", form_parts.LimitedParser.__base__)
    assert form(body).POST is not None
