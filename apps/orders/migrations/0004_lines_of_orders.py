"""Orders from before have lines too, a place each at the price it was held for; every ticket has its line; and what a
line says is never written again."""

import django.db.models.deletion
from django.db import migrations, models

LINES = """
INSERT INTO orders_orderline (
    order_id, kind, reservation_line_id, place, description, category, price_minor, discount_minor, fee_minor, tax_rate,
    tax_included, tax_minor, total_minor, canceled_at
)
SELECT sale.id, 'place', held.id, place,
       CASE WHEN seat.id IS NOT NULL
                THEN concat(section.name, ', row ', seat.row, ', seat ', seat.number)
            WHEN held.quantity > 1
                THEN concat(section.name, ', ', place, ' of ', held.quantity)
            ELSE section.name END,
       category.name, held.price_minor, 0, 0, 0, true, 0, held.price_minor,
       CASE WHEN sale.status = 'refunded' THEN sale.ended_at END
FROM orders_order AS sale
JOIN reservations_reservationline AS held ON held.reservation_id = sale.reservation_id
JOIN events_section AS section ON section.id = held.section_id
JOIN events_category AS category ON category.id = held.category_id
LEFT JOIN events_seat AS seat ON seat.id = held.seat_id
CROSS JOIN generate_series(1, held.quantity) AS place
ORDER BY sale.placed_at, held.id, place
"""
TICKETS = """
UPDATE orders_ticket AS ticket
SET order_line_id = line.id
FROM orders_orderline AS line
WHERE line.reservation_line_id = ticket.line_id AND line.place = ticket.place
"""
# Else the table could not be altered: checks of what was just written would still be to come.
CHECK_NOW = "SET CONSTRAINTS ALL IMMEDIATE"
FROZEN = """
CREATE FUNCTION order_line_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what an order is made of was frozen when it was placed'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'order_line_frozen';
END
$$;
CREATE TRIGGER order_line_frozen
BEFORE UPDATE OF order_id, kind, reservation_line_id, place, description, category, price_minor, discount_minor,
                 fee_minor, tax_rate, tax_included, tax_minor, total_minor
ON orders_orderline
FOR EACH ROW EXECUTE FUNCTION order_line_frozen();
"""
UNFROZEN = """
DROP TRIGGER order_line_frozen ON orders_orderline;
DROP FUNCTION order_line_frozen();
"""


class Migration(migrations.Migration):
    dependencies = [("orders", "0003_order_lines"), ("events", "0006_section_capacity_words")]
    operations = [
        migrations.RunSQL(LINES, migrations.RunSQL.noop),
        migrations.RunSQL(TICKETS, migrations.RunSQL.noop),
        migrations.RunSQL(CHECK_NOW, migrations.RunSQL.noop),
        migrations.AlterField(
            "ticket",
            "order_line",
            models.ForeignKey(
                help_text="What was paid for it.",
                on_delete=django.db.models.deletion.PROTECT,
                related_name="tickets",
                to="orders.orderline",
            ),
        ),
        migrations.RunSQL(FROZEN, UNFROZEN),
    ]
