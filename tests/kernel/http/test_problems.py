"""Problems: those that represent errors of the database, and the way back from a page that shows one."""

import threading

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client

from apps.kernel.http import problems
from apps.queue.entries import join
from tests.support.factories import make_event


def _idle_in_a_transaction() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '10ms'")
        threading.Event().wait(0.2)
        cursor.execute("SELECT 1")


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_the_server_ended_as_idle_is_busy() -> None:
    with pytest.raises(DatabaseError) as ended:
        _idle_in_a_transaction()
    connection.close()
    assert isinstance(problems.from_exception(ended.value), problems.Busy)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sender", "action"),
    [
        ("http://testserver/events/concert/", 'href="http://testserver/events/concert/">Go back and try again'),
        ("https://elsewhere.example/", ">See all events"),
        ("", ">See all events"),
    ],
)
def test_a_busy_page_leads_back_to_the_form(monkeypatch: pytest.MonkeyPatch, sender: str, action: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise problems.Busy

    monkeypatch.setattr(join.joins, "submit_sync", refuse)
    make_event()
    shopper = Client(headers={"Referer": sender, "Sec-Fetch-Site": "same-origin"})
    response = shopper.post("/events/concert/join", follow=True)
    assert response.status_code == 503
    assert action in response.content.decode()


def test_a_refusal_names_twenty_errors_at_most() -> None:
    refused = problems.Invalid({f"field {number}": "unknown field" for number in range(1_000)})
    errors = refused.document()["errors"]
    assert (len(errors), errors["body"]) == (21, "980 more errors")
    assert len(refused.detail) < 1_000
