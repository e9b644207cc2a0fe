"""Proof of work on the log-in: by the page, with and without scripts, and by the token endpoint."""

import json
import re
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User
from tests.support.api_client import Api, assert_problem
from tests.support.queue.work import solve

pytestmark = pytest.mark.django_db
LOG_IN = "/accounts/log-in"
CREDENTIALS = {"username": "ann@example.org", "password": "a long password"}


@pytest.fixture
def client(browser: Client) -> Client:
    return browser


@pytest.fixture(autouse=True)
def _account(settings: Any) -> None:
    User.objects.create_user(CREDENTIALS["username"], password=CREDENTIALS["password"])
    settings.PROOF_OF_WORK_LOG_IN, settings.PROOF_OF_WORK_STEPS, settings.PROOF_OF_WORK_DELAY_SECONDS = "on", 2, 0


def challenge_on(response: Any) -> dict[str, Any]:
    found = re.search(r'<script id="work-challenge" type="application/json">(.*?)</script>', response.content.decode())
    assert found is not None
    return dict(json.loads(found[1]))


def is_logged_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_the_page_has_a_challenge_whose_proof_logs_in_once(client: Client) -> None:
    proof = solve(challenge_on(client.get(LOG_IN)))
    assert client.post(LOG_IN, {**CREDENTIALS, "proof": proof}).status_code == 302
    assert is_logged_in(client)
    other = Client(headers={"sec-fetch-site": "same-origin"})
    again = other.post(LOG_IN, {**CREDENTIALS, "proof": proof})
    assert (again.status_code, is_logged_in(other)) == (200, False)


def test_without_work_no_password_is_checked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(User, "check_password", lambda *_: pytest.fail("the password was checked"))
    response = client.post(LOG_IN, CREDENTIALS)
    assert response.status_code == 200
    assert "programs do not guess passwords" in response.content.decode()
    challenge_on(response)


def test_without_scripts_the_delay_of_the_page_is_enough(client: Client, settings: Any) -> None:
    (delay,) = re.findall(r'name="delay" value="(.*?)"', client.get(LOG_IN).content.decode())
    settings.PROOF_OF_WORK_DELAY_SECONDS = 20
    (early,) = re.findall(r'name="delay" value="(.*?)"', Client().get(LOG_IN).content.decode())
    refused = client.post(LOG_IN, {**CREDENTIALS, "delay": early})
    assert re.search(r"Wait (19|20) seconds", refused.content.decode())
    assert f'name="delay" value="{early}"' in refused.content.decode(), "the wait goes on"
    assert client.post(LOG_IN, {**CREDENTIALS, "delay": delay}).status_code == 302


@pytest.mark.parametrize("given", [{"proof": "x" * 3_000}, {"delay": "\x00"}, {"proof": "e30=", "delay": "a.b.c"}])
def test_odd_values_are_refused(client: Client, given: dict[str, str]) -> None:
    assert client.post(LOG_IN, {**CREDENTIALS, **given}).status_code == 200
    assert not is_logged_in(client)


def test_tokens_need_work_too(api: Api) -> None:
    refused = assert_problem(api.post("/auth/token", CREDENTIALS), 428, "work-required")
    proof = solve(refused["challenge"])
    assert api.post("/auth/token", {**CREDENTIALS, "proof": proof}).status_code == 200
    assert_problem(api.post("/auth/token", {**CREDENTIALS, "proof": proof}), 428, "work-required")
    assert_problem(api.post("/auth/token", {**CREDENTIALS, "proof": 7 * ["x"]}), 422, "invalid")


def test_no_work_is_needed_while_it_is_off(client: Client, settings: Any) -> None:
    settings.PROOF_OF_WORK_LOG_IN = "off"
    assert "work-challenge" not in client.get(LOG_IN).content.decode()
    assert client.post(LOG_IN, CREDENTIALS).status_code == 302
