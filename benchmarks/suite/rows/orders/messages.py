"""Row messages: stored messages of a provider settled (confirmed orders with tickets), compared with pgbench.

Both settle the same messages about the same orders in the same tables, in turn; the tables are restored in between.
Ours are two processes with the handler of `worker`, as many as it has, which also claim and end the messages of the
outbox.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks.suite import systems
from benchmarks.suite.baselines import settlement_alone
from benchmarks.suite.baselines.postgres_alone import CLIENTS
from benchmarks.suite.bench import BUYERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.results import Findings, compare, in_turn
from benchmarks.suite.systems import Deployment

PROCESSES = 2
MESSAGES_MAX = 2_048
_MAKE = [
    # The charges are not sent: their answers are written below.
    "DELETE FROM outbox_outboxmessage WHERE topic = 'orders.charge' AND done_at IS NULL",
    "DROP TABLE IF EXISTS alone_sale",
    f"""CREATE TABLE alone_sale AS
        SELECT {settlement_alone.FIRST_ID} + row_number() OVER (ORDER BY orders.id) - 1 AS message_id,
               orders.id AS order_id, orders.reservation_id, orders.entry_id, payment.id AS payment_id,
               payment.amount_minor, payment.currency, clock_timestamp() AS occurred_at
        FROM orders_order AS orders JOIN orders_payment AS payment ON payment.order_id = orders.id
        WHERE orders.status = 'placed'
        LIMIT {MESSAGES_MAX}""",  # noqa: S608
    # As many as the clients of pgbench can share.
    f"""DELETE FROM alone_sale
        WHERE message_id >= {settlement_alone.FIRST_ID} + (SELECT count(*) / {CLIENTS} * {CLIENTS} FROM alone_sale)""",  # noqa: S608
    "ANALYZE alone_sale",
]
_RESTORE = [
    "SET session_replication_role = replica",
    "DELETE FROM orders_ticket WHERE order_id IN (SELECT order_id FROM alone_sale)",
    "DELETE FROM orders_changedorder WHERE order_id IN (SELECT order_id FROM alone_sale)",
    """DELETE FROM outbox_outboxmessage
       WHERE key IN (SELECT unnest(ARRAY[order_id::text, 'invoice:' || order_id]) FROM alone_sale)""",
    "DELETE FROM orders_providermessage WHERE payment_id IN (SELECT payment_id FROM alone_sale)",
    """DELETE FROM reservations_reservationtransition
       WHERE to_status = 'confirmed' AND reservation_id IN (SELECT reservation_id FROM alone_sale)""",
    """UPDATE reservations_seatinventory SET status = 1
       WHERE status = 2 AND reservation_id IN (SELECT reservation_id FROM alone_sale)""",
    """UPDATE reservations_reservation SET status = 'paying', confirmed_at = NULL
       WHERE id IN (SELECT reservation_id FROM alone_sale)""",
    """UPDATE queue_queueentry SET status = 'ready', ended_at = NULL
       WHERE id IN (SELECT entry_id FROM alone_sale)""",
    """UPDATE orders_order SET status = 'paying', confirmed_at = NULL
       WHERE id IN (SELECT order_id FROM alone_sale)""",
    """UPDATE orders_payment
       SET status = 'pending', settled_at = NULL, captured_minor = 0, occurred_at = NULL, reference = '',
           started_at = clock_timestamp()
       WHERE id IN (SELECT payment_id FROM alone_sale)""",
]
_STORE = [
    """INSERT INTO orders_providermessage (id, provider, message_id, kind, payment_id, reference, amount_minor,
                                           currency, occurred_at, refund_key, refund_reference, failure,
                                           dispute_reference, raw, received_at, outcome)
       SELECT message_id, 'sandbox', 'bench-' || message_id, 'payment.succeeded', payment_id, 'bench-' || message_id,
              amount_minor, currency, occurred_at, '', '', '', '', convert_to(repeat('raw ', 100), 'UTF8'),
              clock_timestamp(), ''
       FROM alone_sale ORDER BY message_id""",
    """INSERT INTO outbox_outboxmessage (id, topic, key, body, created_at, available_at, is_behind, attempts,
                                         last_error)
       SELECT message_id, 'orders.provider_message', order_id::text, jsonb_build_object('message', message_id),
              clock_timestamp(), clock_timestamp(), false, 0, ''
       FROM alone_sale ORDER BY message_id""",
    """VACUUM ANALYZE orders_ticket, orders_changedorder, outbox_outboxmessage, orders_providermessage,
              reservations_reservationtransition, reservations_seatinventory, reservations_reservation,
              queue_queueentry, orders_order, orders_payment""",
    "CHECKPOINT",
]
_SETTLED = """
SELECT count(*), count(*) FILTER (WHERE orders.status = 'confirmed' AND reservation.status = 'confirmed'
                                        AND payment.status = 'succeeded' AND message.outcome = 'confirmed'
                                        AND entry.status = 'completed' AND delivery.done_at IS NOT NULL
                                        AND tickets.count = 2 AND papers.count = 2)
FROM alone_sale AS sale
JOIN orders_order AS orders ON orders.id = sale.order_id
JOIN reservations_reservation AS reservation ON reservation.id = sale.reservation_id
JOIN queue_queueentry AS entry ON entry.id = sale.entry_id
JOIN orders_payment AS payment ON payment.id = sale.payment_id
JOIN orders_providermessage AS message ON message.id = sale.message_id
JOIN outbox_outboxmessage AS delivery ON delivery.id = sale.message_id
CROSS JOIN LATERAL (SELECT count(*) FROM orders_ticket AS ticket WHERE ticket.order_id = sale.order_id) AS tickets
CROSS JOIN LATERAL (
    SELECT count(*) FROM outbox_outboxmessage AS paper
    WHERE (paper.topic, paper.key) IN (('orders.invoice', 'invoice:' || sale.order_id),
                                       ('orders.send_tickets', sale.order_id::text))
) AS papers
"""


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    with bench.only_placed(deployment), ExitStack() as until:
        requests = bench.checkouts_to_send(deployment)
        bench.flow(deployment.web_port, requests, connections=BUYERS, statuses=True)
        bench.settle()
        _run(deployment, _MAKE)
        until.callback(_run, deployment, [*_RESTORE, "DROP TABLE alone_sale"])
        settlers = until.enter_context(_settlers(bench))

        def ours() -> float:
            with _stored(deployment) as count:
                begun = time.monotonic()
                _act(settlers)
                return count / (time.monotonic() - begun)

        def alone() -> float:
            with _stored(deployment) as count:
                return settlement_alone.rate(deployment, count)

        found = in_turn(bench.rounds, {"ours": ours, "alone": alone}, bench.say)
    title = "messages of a provider settled ÷ pgbench, the same rows, a transaction each, statement by statement"
    return Findings([compare("messages", title, found["ours"], found["alone"], acceptable=1, goal=3)])


@contextmanager
def _stored(deployment: Deployment) -> Iterator[int]:
    """Store the messages, not settled yet, and yield their count. Raises SuiteFailed unless the block settles all."""
    _run(deployment, [*_RESTORE, *_STORE])
    with deployment.ledger() as on:
        ((count,),) = on.execute("SELECT count(*) FROM alone_sale").fetchall()
        if count < 5 * CLIENTS:
            raise SuiteFailed(f"only {count} orders were placed")
        yield count
        ((found, settled),) = on.execute(_SETTLED).fetchall()
    if (found, settled) != (count, count):
        raise SuiteFailed(f"{settled} of {count} messages were settled")


@contextmanager
def _settlers(bench: Bench) -> Iterator[list["subprocess.Popen[str]"]]:
    """Run the processes that settle, and end them after the block."""
    command = [sys.executable, "-m", "benchmarks.suite.rows.orders.settler"]
    with ExitStack() as until:
        log = until.enter_context((bench.folder / "settlers.log").open("w"))
        settlers = [
            subprocess.Popen(
                command, cwd=systems.CHECKOUT, env=bench.deployment.environment, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log,
            )
            for _ in range(PROCESSES)
        ]  # fmt: skip
        for process in settlers:
            until.callback(process.wait)
            until.callback(process.terminate)
            _wait_for_line(process)
        yield settlers


def _act(settlers: Sequence["subprocess.Popen[str]"]) -> None:
    for process in settlers:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in settlers:
        _wait_for_line(process)


def _wait_for_line(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    if not process.stdout.readline():
        raise SuiteFailed("a process that settles messages ended (settlers.log)")


def _run(deployment: Deployment, statements: Sequence[str]) -> None:
    with deployment.ledger() as on:
        on.execute("SET statement_timeout = 0")
        for statement in statements:
            on.execute(statement)  # type: ignore[call-overload]
