"""PostgreSQL alone, driven by pgbench: stored messages about paid orders settled in our own tables, with their triggers
and foreign keys, each message in one transaction, statement by statement."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from benchmarks.suite.baselines.postgres_alone import CLIENTS
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.systems import Deployment

FIRST_ID = 1_000_000_000
"""The id of the first message, and of its outbox message; the others follow."""

_SETTLE = f"""
\\set n :n + 1
\\set id {FIRST_ID} + :client_id * :share + :n - 1
BEGIN;
SELECT payment_id AS payment FROM orders_providermessage WHERE id = :id \\gset
SELECT orders.id AS order, orders.name AS holder, orders.reservation_id AS reservation, orders.entry_id AS entry
FROM orders_order AS orders
WHERE orders.id = (SELECT order_id FROM orders_payment WHERE id = :payment)
FOR NO KEY UPDATE \\gset
SELECT status, amount_minor, currency, reference FROM orders_payment WHERE order_id = :order;
SELECT amount_minor AS amount, currency AS currency, occurred_at AS moment, reference AS reference
FROM orders_providermessage WHERE id = :id FOR NO KEY UPDATE \\gset
SELECT status, pay_deadline FROM reservations_reservation WHERE id = :reservation FOR NO KEY UPDATE;
SELECT seat_id, price_minor FROM reservations_reservationline WHERE reservation_id = :reservation;
SELECT seat_id FROM reservations_seatinventory WHERE reservation_id = :reservation ORDER BY seat_id FOR NO KEY UPDATE;
UPDATE reservations_seatinventory SET status = 2 WHERE reservation_id = :reservation AND status = 1;
INSERT INTO reservations_reservationtransition (reservation_id, from_status, to_status, who, why, at)
VALUES (:reservation, 'paying', 'confirmed', 'provider' || chr(58) || 'sandbox', 'payment', clock_timestamp());
UPDATE reservations_reservation SET status = 'confirmed', confirmed_at = clock_timestamp() WHERE id = :reservation;
UPDATE orders_payment
SET status = 'succeeded', settled_at = clock_timestamp(), captured_minor = :amount, currency = :currency,
    occurred_at = :moment, reference = :reference
WHERE id = :payment;
UPDATE orders_order SET status = 'confirmed', reason = '', confirmed_at = clock_timestamp() WHERE id = :order;
UPDATE orders_providermessage SET outcome = 'confirmed', processed_at = clock_timestamp() WHERE id = :id;
SELECT id, reservation_line_id, description, price_minor FROM orders_orderline WHERE order_id = :order;
INSERT INTO orders_ticket (code, order_id, order_line_id, line_id, place, seat_id, label, section, row, number,
                           category, price_minor, holder, issued_at, replaced_by)
SELECT replace(gen_random_uuid()::text, '-', ''), line.order_id, line.id, line.reservation_line_id, 1, held.seat_id,
       line.description, 'Section', 'Row', 'Seat', line.category, line.price_minor, :holder, clock_timestamp(), ''
FROM orders_orderline AS line
JOIN reservations_reservationline AS held ON held.id = line.reservation_line_id
WHERE line.order_id = :order;
INSERT INTO outbox_outboxmessage (topic, key, body, created_at, available_at, is_behind, attempts, last_error)
VALUES ('orders.invoice', 'invoice:' || :order, jsonb_build_object('order', :order::text), clock_timestamp(),
        clock_timestamp(), false, 0, ''),
       ('orders.send_tickets', :order::text, jsonb_build_object('order', :order::text), clock_timestamp(),
        clock_timestamp(), false, 0, '');
UPDATE outbox_outboxmessage SET done_at = clock_timestamp(), claimed_until = NULL WHERE id = :id;
SELECT id FROM queue_queueentry WHERE id = :entry FOR NO KEY UPDATE;
UPDATE queue_queueentry SET status = 'completed', ended_at = clock_timestamp(), busy_until = NULL WHERE id = :entry;
COMMIT;
"""  # noqa: S608


def rate(deployment: Deployment, count: int) -> float:
    """Settle these messages, and return how many a second. `count` is a multiple of CLIENTS."""
    share = count // CLIENTS
    cluster = deployment.servers.cluster
    with tempfile.TemporaryDirectory(prefix="fairgate-pgbench-") as made:
        path = Path(made) / "script.sql"
        path.write_text(_SETTLE)
        done = subprocess.run(
            [
                deployment.servers.pgbench, "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2", "-t", str(share),
                "-D", "n=0", "-D", f"share={share}", "-f", path, "-h", "127.0.0.1", "-p", str(cluster.port),
                "-U", "postgres", deployment.database,
            ],
            env={**os.environ, "PGPASSWORD": cluster.superuser_password, "LC_ALL": "C"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    per_second = re.search(r"tps = ([\d.]+)", done.stdout)
    if done.returncode != 0 or per_second is None:
        raise SuiteFailed(f"pgbench failed: {(done.stderr or done.stdout)[-500:]}")
    return float(per_second[1])
