"""Adds confirmed orders of the past year to a filled deployment, as sales would have left them.

    python -m benchmarks.suite.old_orders COUNT

Runs in the environment of the deployment (DATABASE_URL, REDIS_URL, SECRET_KEY). Each order has two general-admission
tickets of an event of its own, "past", a payment with the provider's message, an invoice and a mail in its history;
those of the last week also have their delivered messages in the outbox. Their days count as compared with the provider,
whose books do not have them: the comparison would list each of them as a difference while the row is measured.
"""

import os
import sys

_ENTRIES = """
INSERT INTO queue_queueentry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, joined_at, ready_at,
                              admission_expires_at, ended_at)
SELECT md5('sold ' || n)::uuid, %(event_id)s, n, false, '\\x00', '', 'visitor-sold-' || n, 'completed', moment, moment,
       moment + interval '10 minutes', moment + interval '2 minutes'
FROM generate_series(1, %(count)s) AS n
CROSS JOIN LATERAL (SELECT clock_timestamp() - interval '1 day' - n * interval '30 seconds' AS moment) AS at
"""
_HEAD = "UPDATE queue_waitingroom SET next_number = %(count)s + 1, head = %(count)s WHERE event_id = %(event_id)s"
_RESERVATIONS = """
INSERT INTO reservations_reservation (id, event_id, entry_id, buyer, email, status, expires_at, pay_deadline,
                                      seat_count, total_minor, currency, created_at, confirmed_at)
SELECT gen_random_uuid(), event_id, id, 'visitor:' || visitor_id, visitor_id || '@example.org', 'confirmed',
       joined_at + interval '10 minutes', joined_at + interval '10 minutes', 2, 5000, 'USD', joined_at, ended_at
FROM queue_queueentry
WHERE event_id = %(event_id)s
"""
_LINES = """
INSERT INTO reservations_reservationline (reservation_id, section_id, category_id, seat_id, quantity, price_minor, live)
SELECT id, %(section_id)s, %(category_id)s, NULL, 2, 2500, true
FROM reservations_reservation
WHERE event_id = %(event_id)s
"""
_STEPS = """
INSERT INTO reservations_reservationtransition (reservation_id, from_status, to_status, who, why, at)
SELECT reservation.id, step.was, step.became, 'visitor', '', reservation.created_at + step.after
FROM reservations_reservation AS reservation
CROSS JOIN (VALUES ('', 'pending_payment', interval '0'), ('pending_payment', 'paying', interval '1 minute'),
                   ('paying', 'confirmed', interval '2 minutes')) AS step (was, became, after)
WHERE reservation.event_id = %(event_id)s
"""
_TAKEN = "UPDATE reservations_generaladmissioninventory SET taken = 2 * %(count)s WHERE section_id = %(section_id)s"
_ORDERS = """
INSERT INTO orders_order (id, number, reservation_id, event_id, entry_id, buyer, email, name, status, reason,
                          total_minor, currency, pay_deadline, placed_at, confirmed_at, terms_version, tickets_sent_at,
                          link_version)
SELECT gen_random_uuid(), left(md5(id::text), 11), id, event_id, entry_id, buyer, email, 'Ada Buyer', 'confirmed', '',
       total_minor, currency, pay_deadline, created_at + interval '1 minute', confirmed_at, '', confirmed_at, 0
FROM reservations_reservation
WHERE event_id = %(event_id)s
ON CONFLICT (number) DO NOTHING
"""
_ORDER_LINES = """
INSERT INTO orders_orderline (order_id, kind, reservation_line_id, place, description, category, price_minor,
                              discount_minor, fee_minor, tax_rate, tax_included, tax_minor, total_minor)
SELECT orders.id, 'place', line.id, place, 'Floor', 'Floor', 2500, 0, 0, 0, true, 0, 2500
FROM orders_order AS orders
JOIN reservations_reservationline AS line ON line.reservation_id = orders.reservation_id
CROSS JOIN generate_series(1, 2) AS place
WHERE orders.event_id = %(event_id)s
"""
_PAYMENTS = """
INSERT INTO orders_payment (id, order_id, attempt, provider, method, faults_count, reference, status, amount_minor,
                            captured_minor, refunded_minor, currency, counts_until, created_at, started_at, occurred_at,
                            settled_at)
SELECT gen_random_uuid(), id, 1, 'sandbox', 'card', 0, 'charge-' || id, 'succeeded', total_minor, total_minor, 0,
       currency, pay_deadline, placed_at, placed_at, confirmed_at, confirmed_at
FROM orders_order
WHERE event_id = %(event_id)s
"""
_MESSAGES = """
INSERT INTO orders_providermessage (provider, message_id, kind, payment_id, reference, amount_minor, currency,
                                    occurred_at, refund_key, refund_reference, failure, dispute_reference, raw,
                                    received_at, processed_at, outcome)
SELECT 'sandbox', 'event-' || payment.id, 'payment.succeeded', payment.id, payment.reference, payment.amount_minor,
       payment.currency, payment.occurred_at, '', '', '', '', convert_to(repeat('raw ', 100), 'UTF8'),
       payment.occurred_at, payment.settled_at, 'confirmed'
FROM orders_payment AS payment
JOIN orders_order AS orders ON orders.id = payment.order_id
WHERE orders.event_id = %(event_id)s
"""
_TICKETS = """
INSERT INTO orders_ticket (code, order_id, order_line_id, line_id, place, label, section, row, number, category,
                           price_minor, holder, issued_at, replaced_by)
SELECT upper(left(md5(line.id::text), 28)), line.order_id, line.id, line.reservation_line_id, line.place, 'Floor',
       'Floor', '', '', 'Floor', line.price_minor, orders.name, orders.confirmed_at, ''
FROM orders_orderline AS line
JOIN orders_order AS orders ON orders.id = line.order_id
WHERE orders.event_id = %(event_id)s
"""
_INVOICES = """
INSERT INTO orders_invoice (kind, series, year, sequence, number, order_id, issued_at, currency, total_minor, tax_minor,
                            paper)
SELECT 'invoice', 'OLD', 2020, position, 'OLD-' || position, id, confirmed_at, currency, total_minor, 0,
       jsonb_build_object(
           'seller', jsonb_build_object('name', 'The Organizer', 'address', 'A Street 1', 'tax_id', ''),
           'buyer', jsonb_build_object('name', name, 'email', email), 'date', '1 June 2026', 'order', id,
           'event', jsonb_build_object('name', 'Past', 'venue', 'Venue of past', 'city', ''),
           'lines', jsonb_build_array(line, line), 'taxes', '[]'::jsonb
       )
FROM (
    SELECT *, row_number() OVER (ORDER BY confirmed_at) AS position,
           jsonb_build_object('description', 'Floor', 'category', 'Floor', 'tax_rate', 0, 'total_minor', 2500) AS line
    FROM orders_order
    WHERE event_id = %(event_id)s
) AS sold
"""
_HISTORY = """
INSERT INTO orders_orderhistoryentry (order_id, kind, who, text, address, at)
SELECT id, 'mail', '', 'Your tickets for Past', email, tickets_sent_at
FROM orders_order
WHERE event_id = %(event_id)s
"""
_OUTBOX = """
INSERT INTO outbox_outboxmessage (topic, key, body, created_at, available_at, is_behind, claimed_at, receipt, attempts,
                                  done_at, last_error)
SELECT topic, id::text, jsonb_build_object('order', id), confirmed_at, confirmed_at, false, confirmed_at,
       gen_random_uuid(), 1, confirmed_at, ''
FROM orders_order
CROSS JOIN unnest(ARRAY['orders.charge', 'orders.provider_message', 'orders.invoice', 'orders.send_tickets']) AS topic
WHERE event_id = %(event_id)s AND confirmed_at > clock_timestamp() - interval '7 days'
"""
_COMPARED_DAYS = """
INSERT INTO orders_comparedday (provider, day, asked_at, compared_at, captures_count, refunds_count)
SELECT provider, (started_at AT TIME ZONE 'UTC')::date, max(moment.now), max(moment.now), count(*), 0
FROM orders_payment
CROSS JOIN (SELECT clock_timestamp() AS now) AS moment
GROUP BY 1, 2
"""
_STATEMENTS = (
    _ENTRIES, _HEAD, _RESERVATIONS, _LINES, _STEPS, _TAKEN, _ORDERS, _ORDER_LINES, _PAYMENTS, _MESSAGES, _TICKETS,
    _INVOICES, _HISTORY, _OUTBOX, _COMPARED_DAYS,
)  # fmt: skip


def add_orders(count: int) -> None:
    from django.db import connection

    from benchmarks.suite import fill
    from benchmarks.support import halls

    past = fill.make_small_event("past", fill.FLOOR)
    place = {"event_id": past.event.id, "section_id": past.floor.id, "category_id": past.floor.category_id}
    with connection.cursor() as cursor:
        # Without triggers: the rows are written as they would leave them, and the audit need not check them.
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("SET statement_timeout = 0")
        for statement in _STATEMENTS:
            cursor.execute(statement, {**place, "count": count} if "%(count)s" in statement else place)
            cursor.execute("ANALYZE orders_order, reservations_reservation, reservations_reservationline")
        cursor.execute("SELECT count(*) FROM orders_order WHERE event_id = %s", [past.event.id])
        ((found,),) = cursor.fetchall()
    assert found > count * 0.99, f"{found} of {count} orders"
    halls.vacuum_tables()


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
    import django

    django.setup()
    add_orders(int(sys.argv[1]))


if __name__ == "__main__":
    main()
