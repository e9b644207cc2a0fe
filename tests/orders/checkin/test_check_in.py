"""The door: who is let in, what is said to whom, and that a ticket lets one person in once."""

import uuid

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
    return make_event("concert", general_admission=20)


@pytest.fixture
def order(concert) -> Order:
    """Two seats and a place, paid."""
    return buy(hold(concert, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=1))


def tickets(order: Order) -> list[Ticket]:
    return list(order.tickets.order_by("id"))


def show(event: events.EventView, code: str, *, scan_id: str = "", door: str = "A", who: str = STAFF):
    return scan(event, Scan(scan_id or uuid.uuid4().hex, code, door=door), who)


def take_back(event: events.EventView, undo: str, *, who: str = STAFF, only_own: bool = False):
    return scan(event, Scan(uuid.uuid4().hex, undo=undo, door="A"), who, only_own=only_own)


def test_a_ticket_lets_in_once_and_says_since_when_and_where(concert, order) -> None:
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


def test_the_same_scan_sent_again_is_welcome_again_and_on_record_once(concert, order) -> None:
    ticket = tickets(order)[0]
    answers = [show(concert, ticket.code, scan_id="scan-0001") for _ in range(3)]
    assert answers[0].outcome == Outcome.WELCOME
    assert answers[0] == answers[1] == answers[2]
    assert TicketScan.objects.count() == 1
    # Also after the ticket was given back: the answer was given then.
    order_cancellation.refund_order(order.pk, STAFF)
    assert show(concert, ticket.code, scan_id="scan-0001") == answers[0]
    assert show(concert, ticket.code).outcome == Outcome.NOT_VALID


def test_an_id_used_for_another_code_is_refused(concert, order) -> None:
    one, other, _ = tickets(order)
    show(concert, one.code, scan_id="scan-0001")
    with pytest.raises(problems.IdempotencyMismatch):
        show(concert, other.code, scan_id="scan-0001")
    assert not Ticket.objects.get(pk=other.pk).checked_in_at


def test_each_reason_to_refuse_has_its_own_answer(concert, order) -> None:
    ball = make_event("ball")
    elsewhere = tickets(buy(hold(ball, seats=["hall-A-1"])))[0]
    wrong = show(concert, elsewhere.code)
    assert (wrong.outcome, wrong.event.slug) == (Outcome.WRONG_EVENT, "ball")
    assert "Ball" in build_scan_message(concert, wrong).more
    old = tickets(order)[0]
    reissue.reissue_ticket(order.pk, old.code, STAFF)
    assert show(concert, old.code).outcome == Outcome.REPLACED
    given_back = buy(hold(concert, seats=["hall-B-1"]))
    order_cancellation.refund_order(given_back.pk, STAFF)
    assert show(concert, tickets(given_back)[0].code).outcome == Outcome.NOT_VALID
    nobody = show(concert, "A" * 28)
    assert (nobody.outcome, nobody.ticket) == (Outcome.UNKNOWN, None)
    assert not Ticket.objects.filter(checked_in_at__isnull=False).exists()
    words = [build_scan_message(concert, answer) for answer in (wrong, nobody)]
    assert len({word.icon for word in words}) == 2
    assert_audit_clean()


@pytest.mark.parametrize(
    "sent",
    ["{}", " {} ", "https://tickets.example/tickets/{}/", "lower:{}", "grouped:{}"],
    ids=["as it is", "blanks", "address", "lower", "grouped"],
)
def test_a_code_is_read_as_it_is_shown(sent: str) -> None:
    code = "ABCDEFGHIJKLMNOPQRSTUVWXYZ23"
    if sent.startswith("lower:"):
        sent = code.lower()
    elif sent.startswith("grouped:"):
        sent = "-".join(code[at : at + 4] for at in range(0, 28, 4))
    assert read_code(sent.format(code)) == code


def test_digits_that_no_code_has_are_the_letters_they_look_like() -> None:
    assert read_code("0BCD 1FGH 8JKL MNOP QRST UVWX YZ23") == "OBCDIFGHBJKLMNOPQRSTUVWXYZ23"


def test_what_is_no_code_is_kept_as_it_was_shown(concert) -> None:
    show(concert, "WIFI:S:guest;P:secret;;" + "x" * 200)
    kept = TicketScan.objects.get()
    assert kept.code.startswith("WIFI:S:guest")
    assert len(kept.code) == 80


def test_a_check_in_taken_back_may_come_in_again(concert, order) -> None:
    ticket = tickets(order)[0]
    show(concert, ticket.code, scan_id="scan-0001")
    back = take_back(concert, "scan-0001")
    assert (back.outcome, back.ticket.label) == (Outcome.UNDONE, ticket.label)
    assert take_back(concert, "scan-0001").outcome == Outcome.NOT_UNDONE
    assert show(concert, ticket.code).outcome == Outcome.WELCOME
    # The phone that let it in first sends its scan again, late: what was said then, and nothing changes.
    assert show(concert, ticket.code, scan_id="scan-0001").outcome == Outcome.WELCOME
    # And its undo, late: the ticket has come in anew since, by another scan.
    assert take_back(concert, "scan-0001").outcome == Outcome.NOT_UNDONE


def test_a_volunteer_takes_back_only_what_the_same_link_let_in(concert, order) -> None:
    ticket = tickets(order)[0]
    show(concert, ticket.code, scan_id="scan-0001", who="link:one")
    assert take_back(concert, "scan-0001", who="link:two", only_own=True).outcome == Outcome.NOT_UNDONE
    assert take_back(concert, "scan-0001", who="link:one", only_own=True).outcome == Outcome.UNDONE


def test_taking_back_what_was_never_scanned_changes_nothing(concert, order) -> None:
    assert take_back(concert, "scan-9999").outcome == Outcome.NOT_UNDONE
    ticket = tickets(order)[0]
    answer = check_in.undo_last_check_in(concert, Scan("scan-0001", ticket.code), STAFF)
    assert (answer.outcome, answer.ticket.label) == (Outcome.NOT_UNDONE, ticket.label)


def test_the_record_of_scans_cannot_be_rewritten(concert, order) -> None:
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


def test_of_many_doors_that_scan_one_ticket_at_once_one_says_welcome(concert, order) -> None:
    """All lock the order's row; who comes second reads the ticket after the first one's commit, and finds it in."""
    ticket = tickets(order)[0]
    outcomes = values(storm(8, lambda number: show(concert, ticket.code, door=str(number)).outcome))
    assert sorted(outcomes) == [Outcome.ALREADY_IN] * 7 + [Outcome.WELCOME]
    assert TicketScan.objects.filter(outcome=Outcome.WELCOME).count() == 1
    assert_audit_clean()


def test_control_without_the_lock_two_doors_say_welcome(concert, order) -> None:
    """Door one reads: not in. Door two reads, writes, commits. Door one writes what it decided from its reading.

    The naive way; only the database's own row would have known better."""
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
    assert _write(seen_by_one) == Outcome.WELCOME, "two are in with one ticket"


def test_one_scan_that_arrives_many_times_at_once_is_one_welcome_for_all(concert, order) -> None:
    """The phone's connection drops and it sends again while the first try is still being decided."""
    ticket = tickets(order)[0]
    answers = values(storm(6, lambda _: show(concert, ticket.code, scan_id="scan-0001")))
    assert {answer.outcome for answer in answers} == {Outcome.WELCOME}
    assert len({answer.at for answer in answers}) == 1
    assert TicketScan.objects.count() == 1
    assert_audit_clean()


def test_an_unknown_code_that_arrives_many_times_at_once_is_on_record_once(concert) -> None:
    """No order is locked for it: the unique scan id decides, and who loses reads the winner's answer."""
    answers = values(storm(6, lambda _: show(concert, "B" * 28, scan_id="scan-0001")))
    assert {answer.outcome for answer in answers} == {Outcome.UNKNOWN}
    assert len({answer.at for answer in answers}) == 1
    assert TicketScan.objects.count() == 1


def test_a_door_and_a_refund_at_once_leave_nobody_in_with_a_ticket_that_was_valid_when_refused(concert) -> None:
    """Either the door is first, and the refund voids a ticket that is in, or it is second and says not valid."""
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


def test_a_door_and_a_new_code_at_once_let_one_person_in_for_the_place(concert) -> None:
    """The old code at the door and its replacement race: in with the old one, then no new code; or the other way."""
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


def test_a_scan_asks_for_few_statements(concert, order, django_assert_max_num_queries) -> None:
    code = tickets(order)[0].code
    with django_assert_max_num_queries(14, connection=connection):
        show(concert, code)
