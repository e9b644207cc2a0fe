"""/.well-known/security.txt: RFC 9116, only with a contact."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from apps.kernel import clock
from ticketing.settings_parser import InvalidSetting, parse_contacts

URL = "/.well-known/security.txt"


def test_without_a_contact_there_is_no_file(client: Client, settings: Any) -> None:
    assert settings.SECURITY_CONTACT == []
    response = client.get(URL)
    assert (response.status_code, response.headers["Content-Type"]) == (404, "text/plain; charset=utf-8")
    assert response.content == b"This site names no contact for security reports.\n"


def test_the_file_names_the_contacts_and_an_expiry_within_a_year(client: Client, settings: Any) -> None:
    settings.SECURITY_CONTACT = ["mailto:security@example.org", "https://example.org/security"]
    settings.SITE_URL = "https://tickets.example/"
    response = client.get(URL)
    assert (response.status_code, response.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    fields = [tuple(line.split(": ", 1)) for line in response.content.decode().splitlines()]
    assert [name for name, _ in fields] == ["Contact", "Contact", "Expires", "Canonical"]
    assert [value for name, value in fields if name == "Contact"] == settings.SECURITY_CONTACT
    found = dict(fields)
    assert found["Canonical"] == f"https://tickets.example{URL}"
    left = datetime.fromisoformat(found["Expires"]) - clock.process_now()
    assert timedelta(days=30) < left < timedelta(days=365)
    assert client.head(URL).status_code == 200
    assert client.post(URL).status_code in (403, 405)


def test_behind_https_the_file_is_only_served_over_https(client: Client, settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get(URL).status_code == 301


def test_a_contact_is_a_uri() -> None:
    assert parse_contacts("SECURITY_CONTACT", []) == []
    given = ["mailto:security@example.org", " https://example.org/security ", "tel:+1-201-555-0123", ""]
    assert parse_contacts("SECURITY_CONTACT", given) == [value.strip() for value in given[:3]]
    for value in (
        "security@example.org",
        "http://example.org",
        "mailto:",
        "https://example.org\nContact: x",
        "javascript:1",
    ):
        with pytest.raises(InvalidSetting, match=r"^SECURITY_CONTACT must be URIs like mailto:"):
            parse_contacts("SECURITY_CONTACT", [value])
