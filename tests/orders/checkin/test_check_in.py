"""Check-in: outcomes, their messages, and that a ticket admits one person once."""

import uuid
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders.cancellation import order_cancellation
from apps.orders.checkin import check_in
from apps.orders.checkin.check_in import Outcome, Scan, scan
from apps.orders.checkin.counts import count_entered
from apps.orders.checkin.scan_messages import build_scan_message
from apps.orders.checkin.ticket_codes import read_code
from apps.orders.models import Order, Ticket, TicketScan
from apps.orders.tickets import reissue
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy
from tests.support.races import in_another_connection, storm, values

pytestmark = pytest.mark.django_db(transaction=True)
STAFF = "staff:1"


@pytest.fixture
def concert() -> events.EventView:
    return make_event("concert", general_admission=20, starts_at=clock.now() + timedelta(hours=1))


@pytest.fixture
def order(concert) -> Order:
    """A paid order of two seats and one general-admission ticket."""
    return buy(hold(concert, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=1))


def tickets(order: Order) -> list[Ticket]:
    return list(order.tickets.order_by("id"))


def show(event: events.EventView, code: str, *, scan_id: str = "", door: str = "A", who: str = STAFF):
    return scan(event, Scan(scan_id or uuid.uuid4().hex, code, door=door), who)


def undo_scan(event: events.EventView, undo: str, *, who: str = STAFF, only_own: bool = False):
    return scan(event, Scan(uuid.uuid4().hex, undo=undo, door="A"), who, only_own=only_own)


def test_a_ticket_admits_once_and_then_reports_when_and_where(concert, order) -> None:
    ticket = tickets(order)[0]
    first = show(concert, ticket.code, door="North")
    assert (first.outcome, first.ticket.label) == (Outcome.WELCOME, ticket.label)
    second = show(concert, ticket.code, door="South")
    assert (second.outcome, second.since_door) == (Outcome.ALREADY_IN, "North")
    ticket.refresh_from_db()
    assert second.since == ticket.checked_in_at == first.at
    assert "North" in build_scan_message(concert, second).more
    rows = TicketScan.objects.order_by("id").values_list("outcome", "door", "who", "ticket")
    assert list(rows) == [
        ("welcome", "North", STAFF, ticket.pk),
        ("already_in", "South", STAFF, ticket.pk),
    ]
    assert_audit_clean()


def test_a_retried_scan_gets_the_same_answer_and_is_recorded_once(concert, order) -> None:
    ticket = tickets(order)[0]
    answers = [show(concert, ticket.code, scan_id="scan-0001") for _ in range(3)]
    assert answers[0].outcome == Outcome.WELCOME
    assert answers[0] == answers[1] == answers[2]
    assert TicketScan.objects.count() == 1
    # Even after the ticket was refunded: the stored answer does not change.
    order_cancellation.refund_order(order.pk, STAFF)
    assert show(concert, ticket.code, scan_id="scan-0001") == answers[0]
    assert show(concert, ticket.code).outcome == Outcome.NOT_VALID


def test_an_id_used_for_another_code_is_refused(concert, order) -> None:
    one, other, _ = tickets(order)
    show(concert, one.code, scan_id="scan-0001")
    with pytest.raises(problems.IdempotencyMismatch):
        show(concert, other.code, scan_id="scan-0001")
    assert not Ticket.objects.get(pk=other.pk).checked_in_at


def test_each_reason_to_refuse_has_its_own_outcome(concert, order) -> None:
    ball = make_event("ball")
    elsewhere = tickets(buy(hold(ball, seats=["hall-A-1"])))[0]
    wrong = show(concert, elsewhere.code)
    assert (wrong.outcome, wrong.event.slug) == (Outcome.WRONG_EVENT, "ball")
    assert "Ball" in build_scan_message(concert, wrong).more
    old = tickets(order)[0]
    reissue.reissue_ticket(order.pk, old.code, STAFF)
    assert show(concert, old.code).outcome == Outcome.REPLACED
    refunded = buy(hold(concert, seats=["hall-B-1"]))
    order_cancellation.refund_order(refunded.pk, STAFF)
    assert show(concert, tickets(refunded)[0].code).outcome == Outcome.NOT_VALID
    unknown = show(concert, "A" * 28)
    assert (unknown.outcome, unknown.ticket) == (Outcome.UNKNOWN, None)
    assert not Ticket.objects.filter(checked_in_at__isnull=False).exists()
    shown = [build_scan_message(concert, answer) for answer in (wrong, unknown)]
    assert len({word.icon for word in shown}) == 2
    assert_audit_clean()


@pytest.mark.parametrize(
    "sent",
    ["{}", " {} ", "https://tickets.example/tickets/{}/", "lower:{}", "grouped:{}"],
    ids=["as it is", "blanks", "address", "lower", "grouped"],
)
def test_a_code_is_read_in_every_form_in_which_it_is_shown(sent: str) -> None:
    code = "ABCDEFGHIJKLMNOPQRSTUVWXYZ23"
    if sent.startswith("lower:"):
        sent = code.lower()
    elif sent.startswith("grouped:"):
        sent = "-".join(code[at : at + 4] for at in range(0, 28, 4))
    assert read_code(sent.format(code)) == code


def test_digits_that_no_code_contains_are_read_as_similar_letters() -> None:
    assert read_code("0BCD 1FGH 8JKL MNOP QRST UVWX YZ23") == "OBCDIFGHBJKLMNOPQRSTUVWXYZ23"


def test_text_that_is_not_a_code_is_recorded_unchanged(concert) -> None:
    show(concert, "WIFI:S:guest;P:secret;;" + "x" * 200)
    stored = TicketScan.objects.get()
    assert stored.code.startswith("WIFI:S:guest")
    assert len(stored.code) == 80


def test_an_undone_check_in_can_be_repeated(concert, order) -> None:
    ticket = tickets(order)[0]
    show(concert, ticket.code, scan_id="scan-0001")
    back = undo_scan(concert, "scan-0001")
    assert (back.outcome, back.ticket.label) == (Outcome.UNDONE, ticket.label)
    assert undo_scan(concert, "scan-0001").outcome == Outcome.NOT_UNDONE
    assert show(concert, ticket.code).outcome == Outcome.WELCOME
    # A late retry of the first scan gets its old answer and changes nothing.
    assert show(concert, ticket.code, scan_id="scan-0001").outcome == Outcome.WELCOME
    # A late undo of it fails: another scan has checked the ticket in again since.
    assert undo_scan(concert, "scan-0001").outcome == Outcome.NOT_UNDONE


def test_a_link_undoes_only_its_own_check_ins(concert, order) -> None:
    ticket = tickets(order)[0]
    show(concert, ticket.code, scan_id="scan-0001", who="link:one")
    assert undo_scan(concert, "scan-0001", who="link:two", only_own=True).outcome == Outcome.NOT_UNDONE
    assert undo_scan(concert, "scan-0001", who="link:one", only_own=True).outcome == Outcome.UNDONE


def test_undoing_an_unknown_scan_changes_nothing(concert, order) -> None:
    assert undo_scan(concert, "scan-9999").outcome == Outcome.NOT_UNDONE
    ticket = tickets(order)[0]
    answer = check_in.undo_last_check_in(concert, Scan("scan-0001", ticket.code), STAFF)
    assert (answer.outcome, answer.ticket.label) == (Outcome.NOT_UNDONE, ticket.label)


def test_the_log_of_scans_is_append_only(concert, order) -> None:
    show(concert, tickets(order)[0].code)
    for act in (lambda: TicketScan.objects.update(door="B"), lambda: TicketScan.objects.all().delete()):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            act()


def test_counts_are_of_valid_tickets_by_section(concert, order) -> None:
    order_cancellation.refund_order(buy(hold(concert, seats=["hall-B-1"])).pk, STAFF)
    reissue.reissue_ticket(order.pk, tickets(order)[0].code, STAFF)
    show(concert, tickets(order)[1].code)
    counts = count_entered(concert.id)
    assert [(each.section, each.expected, each.entered) for each in counts.sections] == [
        ("Floor", 1, 0),
        ("Hall", 2, 1),
    ]
    assert (counts.expected, counts.entered) == (3, 1)


def test_of_many_concurrent_scans_of_one_ticket_one_gets_welcome(concert, order) -> None:
    """All lock the order's row; the second reads the ticket after the first commit and finds it checked in."""
    ticket = tickets(order)[0]
    outcomes = values(storm(8, lambda number: show(concert, ticket.code, door=str(number)).outcome))
    assert sorted(outcomes) == [Outcome.ALREADY_IN] * 7 + [Outcome.WELCOME]
    assert TicketScan.objects.filter(outcome=Outcome.WELCOME).count() == 1
    assert_audit_clean()


def test_control_without_the_lock_two_doors_get_welcome(concert, order) -> None:
    """Door one reads: not checked in. Door two reads, writes, commits. Door one writes its decision from the old read.

    This is the naive way, without the order's lock."""
    ticket = tickets(order)[0]

    def naively() -> str:
        seen = Ticket.objects.get(pk=ticket.pk)
        if seen.checked_in_at is not None:
            return Outcome.ALREADY_IN
        return _write(seen)

    def _write(seen: Ticket) -> str:
        Ticket.objects.filter(pk=seen.pk).update(checked_in_at=clock.now())
        return Outcome.WELCOME

    seen_by_one = Ticket.objects.get(pk=ticket.pk)
    assert in_another_connection(naively) == Outcome.WELCOME
    assert seen_by_one.checked_in_at is None
    assert _write(seen_by_one) == Outcome.WELCOME, "two people were admitted with one ticket"


def test_concurrent_retries_of_one_scan_all_get_its_welcome(concert, order) -> None:
    """The phone's connection drops, and it retries while the first request is still being decided."""
    ticket = tickets(order)[0]
    answers = values(storm(6, lambda _: show(concert, ticket.code, scan_id="scan-0001")))
    assert {answer.outcome for answer in answers} == {Outcome.WELCOME}
    assert len({answer.at for answer in answers}) == 1
    assert TicketScan.objects.count() == 1
    assert_audit_clean()


def test_concurrent_retries_of_an_unknown_code_are_recorded_once(concert) -> None:
    """No order is locked for it: the unique scan id decides, and the losers read the winner's answer."""
    answers = values(storm(6, lambda _: show(concert, "B" * 28, scan_id="scan-0001")))
    assert {answer.outcome for answer in answers} == {Outcome.UNKNOWN}
    assert len({answer.at for answer in answers}) == 1
    assert TicketScan.objects.count() == 1


def test_a_check_in_and_a_refund_at_once_agree_on_the_ticket(concert) -> None:
    """Either the door is first, and the refund voids a checked-in ticket, or it is second and answers "not valid"."""
    sold = [buy(hold(concert, seats=[f"hall-C-{number}"])) for number in range(1, 5)]

    def act(number: int) -> object:
        each = sold[number // 2]
        if number % 2:
            return order_cancellation.refund_order(each.pk, STAFF)
        return show(concert, each.tickets.get().code).outcome

    outcomes = values(storm(8, act))
    for number, each in enumerate(sold):
        ticket = each.tickets.get()
        assert outcomes[number * 2 + 1] is True
        assert (ticket.checked_in_at is not None) == (outcomes[number * 2] == Outcome.WELCOME)
        assert ticket.checked_in_at is None or ticket.checked_in_at <= ticket.voided_at
    assert_audit_clean()


def test_a_check_in_and_a_reissue_at_once_admit_one_person(concert) -> None:
    """A check-in with the old code races its reissue: either it is checked in and not reissued, or the other way."""
    sold = [buy(hold(concert, seats=[f"hall-D-{number}"])) for number in range(1, 5)]
    codes = [each.tickets.get().code for each in sold]

    def act(number: int) -> object:
        each, code = sold[number // 2], codes[number // 2]
        if number % 2:
            try:
                reissue.reissue_ticket(each.pk, code, reissue.BUYER)
            except reissue.ReissueRefused:
                return "refused"
            return "new"
        return show(concert, code).outcome

    outcomes = values(storm(8, act))
    for number, each in enumerate(sold):
        assert (outcomes[number * 2], outcomes[number * 2 + 1]) in (
            (Outcome.WELCOME, "refused"),
            (Outcome.REPLACED, "new"),
        )
        valid = each.tickets.get(voided_at=None)
        assert (valid.checked_in_at is None) == (outcomes[number * 2] == Outcome.REPLACED)
    assert_audit_clean()


def test_a_scan_needs_few_statements(concert, order, django_assert_max_num_queries) -> None:
    code = tickets(order)[0].code
    with django_assert_max_num_queries(14, connection=connection):
        show(concert, code)
