"""Same key, same answer."""

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


def remember(key: str, fingerprint: str, answer: Answer, at: Any) -> None:
    with transaction.atomic():
        idempotency.store_answer("test:x", key, fingerprint, answer, at)


@pytest.mark.django_db
def test_a_remembered_answer_comes_back_as_it_was_until_its_time_is_over() -> None:
    now = clock.now()
    assert idempotency.find_answer("test:x", "key", "f", now) is None
    remember("key", "f", ANSWER, now)
    assert idempotency.find_answer("test:x", "key", "f", now) == ANSWER
    assert idempotency.find_answer("test:y", "key", "f", now) is None
    day = timedelta(hours=idempotency.REMEMBERED_HOURS)
    assert idempotency.find_answer("test:x", "key", "f", now + day) == ANSWER
    assert idempotency.find_answer("test:x", "key", "f", now + day + timedelta(seconds=1)) is None


@pytest.mark.django_db
def test_a_key_used_for_another_request_is_refused() -> None:
    now = clock.now()
    remember("key", "f", ANSWER, now)
    with pytest.raises(problems.IdempotencyMismatch):
        idempotency.find_answer("test:x", "key", "another", now)


@pytest.mark.django_db
def test_a_key_whose_time_is_over_may_mean_something_new() -> None:
    now = clock.now()
    remember("key", "f", ANSWER, now - timedelta(hours=idempotency.REMEMBERED_HOURS, seconds=1))
    remember("key", "another", Answer(202, "{}"), now)
    assert idempotency.find_answer("test:x", "key", "another", now) == Answer(202, "{}")


@pytest.mark.django_db(transaction=True)
def test_an_answer_is_remembered_only_with_the_change_it_answers() -> None:
    with pytest.raises(transactions.OutsideTransaction):
        idempotency.store_answer("test:x", "key", "f", ANSWER, clock.now())
    with transaction.atomic():
        idempotency.store_answer("test:x", "key", "f", ANSWER, clock.now())
        transaction.set_rollback(True)
    assert idempotency.find_answer("test:x", "key", "f", clock.now()) is None


@pytest.mark.django_db(transaction=True)
def test_two_changes_under_one_key_are_one_change_and_its_answer_stands() -> None:
    """A: makes its change, and remembers its answer; not yet committed
    B: recalled nothing, makes its change too, and waits for A's key
    A: COMMIT
    B: came second: its change is undone, and A's answer is not written over
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
def test_old_answers_go_so_many_at_a_time() -> None:
    now = clock.now()
    for number in range(5):
        remember(f"old-{number}", "f", ANSWER, now - timedelta(hours=idempotency.REMEMBERED_HOURS, seconds=1))
    remember("young", "f", ANSWER, now)
    assert [idempotency.forget_old(now, limit=3) for _ in range(3)] == [3, 2, 0]
    assert IdempotentAnswer.objects.get().key == "young"


@given(JSON, st.randoms())
def test_the_order_of_names_does_not_make_another_request(value: Any, random: Any) -> None:
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


def test_a_value_no_text_encoding_takes_has_a_fingerprint_all_the_same() -> None:
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


def test_a_usable_key_is_the_client_s_to_choose() -> None:
    assert idempotency.key_of(RequestFactory().post("/", headers={"Idempotency-Key": " a key "})) == "a key"
    assert idempotency.check_key("x" * 200) == "x" * 200
