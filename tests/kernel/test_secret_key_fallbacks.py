"""SECRET_KEY is changed during a sale: what the previous key signed is valid until it leaves SECRET_KEY_FALLBACKS."""

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client, RequestFactory
from rest_framework_simplejwt import state

from apps.accounts.models import User
from apps.accounts.tokens.account_tokens import RefreshToken
from apps.kernel import clock, secret_key
from apps.kernel.http import client_address, problems
from apps.kernel.tokens import jwt, keys
from apps.kernel.tokens.account_tokens import FallbackBackend
from apps.orders import access
from apps.orders.errors import SignatureInvalid
from apps.orders.payments.providers.sandbox import messages
from apps.queue.fairness import receipts
from tests.support.api_client import Api

pytestmark = pytest.mark.django_db(transaction=True)

NEW = "the new secret key of this deployment, with enough characters"
UNRELATED = "an even older secret key, which has signed nothing here"
RAW = b"{}"


class Rotation:
    """Changes the settings as a restart of every process would."""

    def __init__(self, settings: Any) -> None:
        self.settings, self.old = settings, settings.SECRET_KEY

    def change(self, secret_key: str, *fallbacks: str) -> None:
        self.settings.SECRET_KEY, self.settings.SECRET_KEY_FALLBACKS = secret_key, list(fallbacks)
        keys.forget()
        client_address.forget_settings()
        state.token_backend = FallbackBackend(state.token_backend.algorithm, secret_key)
        # Signers read the settings when their modules are imported.
        for signer in (access._links, *access._cookies.values()):
            signer.key, signer.fallback_keys = secret_key, list(fallbacks)


@pytest.fixture
def rotation(settings: Any) -> Iterator[Rotation]:
    made = Rotation(settings)
    made.change(made.old)
    yield made
    made.change(made.old)


def is_valid(token: str) -> bool:
    try:
        return jwt.verify(token, frozenset({"queue"})).subject == "entry"
    except problems.TokenInvalid:
        return False


def issue() -> str:
    return jwt.issue("queue", "entry", timedelta(hours=1))


def test_a_queue_token_of_the_derived_key_is_valid_while_the_old_key_is_a_fallback(rotation: Rotation) -> None:
    old = issue()
    rotation.change(NEW, rotation.old)
    new = issue()
    assert [is_valid(old), is_valid(new)] == [True, True]
    rotation.change(NEW)
    assert [is_valid(old), is_valid(new)] == [False, True], "the new key signs"
    rotation.change(rotation.old, NEW)
    assert [is_valid(old), is_valid(new)] == [True, True], "a process that restarts later accepts the new key"


def test_a_queue_token_of_a_rotated_key_is_valid_while_the_old_key_is_a_fallback(rotation: Rotation) -> None:
    row = keys.rotate()
    type(row).objects.filter(pk=row.pk).update(signs_from=clock.now())
    keys.forget()
    old = issue()
    rotation.change(NEW, UNRELATED, rotation.old)
    new = issue()
    assert [is_valid(old), is_valid(new)] == [True, True]
    rotation.change(NEW)
    assert [is_valid(old), is_valid(new)] == [False, True]


def test_a_dropped_key_stays_dropped_under_every_secret_key(rotation: Rotation) -> None:
    stolen = issue()
    keys.drop(next(iter(keys._of_settings())))
    rotation.change(NEW, rotation.old)
    assert not is_valid(stolen)


def test_sessions_and_account_tokens_survive(rotation: Rotation) -> None:
    ann = User.objects.create_user("ann@example.org", password="x")
    browser, absent = Client(), Client()
    for each in (browser, absent):
        each.force_login(ann)
    refresh = RefreshToken.for_user(ann)
    access_token, refresh_token = str(refresh.access_token), str(refresh)
    rotation.change(NEW, UNRELATED, rotation.old)
    api = Api()
    assert browser.get("/accounts/").status_code == 200
    assert api.get("/orders", token=access_token).status_code == 200
    assert api.post("/auth/token/refresh", {"refresh": refresh_token}).status_code == 200
    rotation.change(NEW)
    assert browser.get("/accounts/").status_code == 200, "its session is under the new key since the last visit"
    assert absent.get("/accounts/").status_code == 302
    assert api.get("/orders", token=access_token).json()["type"] == "token-invalid"
    assert api.post("/auth/token/refresh", {"refresh": refresh_token}).status_code == 401


def test_an_expired_account_token_of_a_fallback_is_reported_as_expired(rotation: Rotation) -> None:
    token = RefreshToken.for_user(User.objects.create_user("ann@example.org")).access_token
    token.set_exp(lifetime=timedelta(seconds=-5))
    expired = str(token)
    rotation.change(NEW, rotation.old)
    assert Api().get("/orders", token=expired).json()["type"] == "token-expired"


def test_links_and_cookies_of_orders_survive(rotation: Rotation) -> None:
    order, factory = uuid.uuid4(), RequestFactory()
    key, cookie = access.link_key(order), access._cookies[access.COOKIE].sign(f"{order}~0~9999999999")
    rotation.change(NEW, rotation.old)
    request = factory.get("/")
    request.COOKIES[access.COOKIE] = cookie
    assert access.is_valid_link_key(order, key)
    assert access.orders_opened_by_link(request) == [order]
    rotation.change(NEW)
    assert not access.is_valid_link_key(order, key)
    assert access.orders_opened_by_link(request) == []


def test_the_site_accepts_a_fast_path_that_still_has_the_old_key(rotation: Rotation) -> None:
    token = client_address.forward_token()
    environ = {"HTTP_X_FAIRGATE_LANE": token}
    rotation.change(NEW, rotation.old)
    assert client_address.forward_token() != token
    assert client_address.is_forwarded_by_fastpath(environ)
    rotation.change(NEW)
    assert not client_address.is_forwarded_by_fastpath(environ)


def test_a_webhook_of_the_sandbox_survives(rotation: Rotation) -> None:
    signature = messages.sign(RAW)
    rotation.change(NEW, rotation.old)
    messages.check_signature(RAW, signature)
    assert messages.sign(RAW, 1) != signature
    rotation.change(NEW)
    with pytest.raises(SignatureInvalid):
        messages.check_signature(RAW, signature)


def test_stored_digests_stay_the_same_in_each_step_of_the_documented_change(rotation: Rotation) -> None:
    old = rotation.old
    digest = secret_key.keyed_digest("visitor", "secret")
    for signing, fallbacks in ((old, (NEW, old)), (NEW, (old,))):
        rotation.change(signing, *fallbacks)
        assert secret_key.keyed_digest("visitor", "secret") == digest


def test_receipts_are_signed_with_the_newest_key(rotation: Rotation) -> None:
    old = receipts.current_signer().key_id
    rotation.change(NEW, rotation.old)
    assert receipts.current_signer().key_id != old
