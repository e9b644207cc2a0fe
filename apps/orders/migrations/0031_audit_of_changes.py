"""The database records which orders a transaction has written, whatever code or person writes them."""

from django.db import migrations, models

import apps.kernel.db.transaction_ids

FUNCTION = """
CREATE FUNCTION orders_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    CASE TG_ARGV[0]
    WHEN 'id' THEN
        INSERT INTO orders_changedorder (order_id) SELECT id FROM written;
    WHEN 'order_id' THEN
        INSERT INTO orders_changedorder (order_id) SELECT DISTINCT order_id FROM written;
    WHEN 'payment_id' THEN
        INSERT INTO orders_changedorder (order_id)
        SELECT DISTINCT payment.order_id FROM written JOIN orders_payment AS payment ON payment.id = written.payment_id;
    WHEN 'ticket_id' THEN
        INSERT INTO orders_changedorder (order_id)
        SELECT DISTINCT ticket.order_id FROM written JOIN orders_ticket AS ticket ON ticket.id = written.ticket_id;
    END CASE;
    RETURN NULL;
END
$$;
"""
TABLES = {
    "orders_order": "id",
    "orders_orderline": "order_id",
    "orders_orderadjustment": "order_id",
    "orders_codeuse": "order_id",
    "orders_invoice": "order_id",
    "orders_payment": "order_id",
    "orders_ticket": "order_id",
    "orders_refund": "payment_id",
    "orders_providermessage": "payment_id",
    "orders_tickettransfer": "ticket_id",
}
"""Each table of an order, and the column by which its rows lead to the order."""
# A transition table is that of one event, so an insert and an update have a trigger each. They run once per statement.
TRIGGERS = "".join(
    f"CREATE TRIGGER {table}_note_{event.lower()} AFTER {event} ON {table} REFERENCING NEW TABLE AS written "
    f"FOR EACH STATEMENT EXECUTE FUNCTION orders_note_change('{column}');\n"
    for table, column in TABLES.items()
    for event in ("INSERT", "UPDATE")
)
BACKWARD = (
    "".join(
        f"DROP TRIGGER {table}_note_{event.lower()} ON {table};\n" for table in TABLES for event in ("INSERT", "UPDATE")
    )
    + "DROP FUNCTION orders_note_change();"
)


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0030_cancellation_in_words'),
    ]

    operations = [
        migrations.CreateModel(
            name='ChangedOrder',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('order_id', models.UUIDField(editable=False)),
                ('transaction_id', models.BigIntegerField(db_default=apps.kernel.db.transaction_ids.CurrentTransactionId(), editable=False)),
            ],
        ),
        migrations.RunSQL(FUNCTION + TRIGGERS, BACKWARD),
    ]
