"""Idempotency keys: the same key returns the same response."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import idempotency, problems
from apps.kernel.http.idempotency import Answer
from apps.kernel.models import IdempotentAnswer
from tests.support.races import ConcurrentCall

ANSWER = Answer(201, '{"reservation_id":"x"}')
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def store(key: str, fingerprint: str, answer: Answer, at: Any) -> None:
    with transaction.atomic():
        idempotency.store_answer("test:x", key, fingerprint, answer, at)


@pytest.mark.django_db
def test_a_stored_response_is_returned_unchanged_until_it_expires() -> None:
    now = clock.now()
    assert idempotency.find_answer("test:x", "key", "f", now) is None
    store("key", "f", ANSWER, now)
    assert idempotency.find_answer("test:x", "key", "f", now) == ANSWER
    assert idempotency.find_answer("test:y", "key", "f", now) is None
    day = timedelta(hours=idempotency.REMEMBERED_HOURS)
    assert idempotency.find_answer("test:x", "key", "f", now + day) == ANSWER
    assert idempotency.find_answer("test:x", "key", "f", now + day + timedelta(seconds=1)) is None


@pytest.mark.django_db
def test_a_key_used_for_another_request_is_refused() -> None:
    now = clock.now()
    store("key", "f", ANSWER, now)
    with pytest.raises(problems.IdempotencyMismatch):
        idempotency.find_answer("test:x", "key", "another", now)


@pytest.mark.django_db
def test_an_expired_key_may_be_used_for_another_request() -> None:
    now = clock.now()
    store("key", "f", ANSWER, now - timedelta(hours=idempotency.REMEMBERED_HOURS, seconds=1))
    store("key", "another", Answer(202, "{}"), now)
    assert idempotency.find_answer("test:x", "key", "another", now) == Answer(202, "{}")


@pytest.mark.django_db(transaction=True)
def test_a_response_is_stored_only_with_its_change() -> None:
    with pytest.raises(transactions.OutsideTransaction):
        idempotency.store_answer("test:x", "key", "f", ANSWER, clock.now())
    with transaction.atomic():
        idempotency.store_answer("test:x", "key", "f", ANSWER, clock.now())
        transaction.set_rollback(True)
    assert idempotency.find_answer("test:x", "key", "f", clock.now()) is None


@pytest.mark.django_db(transaction=True)
def test_two_concurrent_changes_with_one_key_are_one_change_and_one_response() -> None:
    """A: makes its change, and stores its response; not yet committed
    B: found no stored response, makes its change too, and waits for A's key
    A: COMMIT
    B: came second: its change is rolled back, and A's response is not overwritten
    """
    answers = [Answer(201, "first"), Answer(201, "second")]

    def change(answer: Answer) -> None:
        assert idempotency.find_answer("test:x", "key", "f", clock.now()) is None
        with transactions.write():
            IdempotentAnswer.objects.create(
                scope="change", key=answer.body, fingerprint="", status=200, answer="", created_at=clock.now()
            )
            idempotency.store_answer("test:x", "key", "f", answer, clock.now())
            if answer.body == "first":
                rivals.append(ConcurrentCall(lambda: change(answers[1])).wait_until_blocked())

    rivals: list[ConcurrentCall] = []
    change(answers[0])
    with pytest.raises(problems.IdempotencyInProgress):
        rivals[0].result()
    assert idempotency.find_answer("test:x", "key", "f", clock.now()) == answers[0]
    assert list(IdempotentAnswer.objects.filter(scope="change").values_list("key", flat=True)) == ["first"]


@pytest.mark.django_db
def test_old_responses_are_deleted_in_limited_batches() -> None:
    now = clock.now()
    for number in range(5):
        store(f"old-{number}", "f", ANSWER, now - timedelta(hours=idempotency.REMEMBERED_HOURS, seconds=1))
    store("young", "f", ANSWER, now)
    assert [idempotency.forget_old(now, limit=3) for _ in range(3)] == [3, 2, 0]
    assert IdempotentAnswer.objects.get().key == "young"


@given(JSON, st.randoms())
def test_the_order_of_keys_does_not_change_the_fingerprint(value: Any, random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = [(name, shuffled(inner)) for name, inner in value.items()]
            random.shuffle(items)
            return dict(items)
        return [shuffled(inner) for inner in value] if isinstance(value, list) else value

    assert idempotency.fingerprint(shuffled(value)) == idempotency.fingerprint(value)


@given(JSON, JSON)
def test_different_requests_have_different_fingerprints(one: Any, other: Any) -> None:
    same = idempotency.canonical(one) == idempotency.canonical(other)
    assert (idempotency.fingerprint(one) == idempotency.fingerprint(other)) == same


def test_a_value_that_cannot_be_encoded_has_a_fingerprint_too() -> None:
    assert len(idempotency.fingerprint({"seats": ["\ud800"]})) == 64


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (None, problems.IdempotencyKeyRequired),
        ("", problems.IdempotencyKeyRequired),
        ("  ", problems.IdempotencyKeyRequired),
        ("x" * 201, problems.Invalid),
        ("sch\u00f6n", problems.Invalid),
        ("a\tb", problems.Invalid),
    ],
)
def test_a_request_needs_a_usable_key(key: str | None, problem: type[problems.Problem]) -> None:
    headers = {} if key is None else {"Idempotency-Key": key}
    with pytest.raises(problem):
        idempotency.key_of(RequestFactory().post("/", headers=headers))


def test_a_client_may_choose_any_usable_key() -> None:
    assert idempotency.key_of(RequestFactory().post("/", headers={"Idempotency-Key": " a key "})) == "a key"
    assert idempotency.check_key("x" * 200) == "x" * 200
