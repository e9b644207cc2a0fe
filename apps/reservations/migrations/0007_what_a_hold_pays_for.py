"""Foreign keys and indexes go that every hold paid for and nobody asked; a trigger keeps the entries instead.

No table is written anew. Each lock is short, but for the index that is built anew: it is that of signed-in buyers.
"""

import django.db.models.deletion
from django.db import migrations, models

FORWARD = """
CREATE FUNCTION reservation_keeps_its_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM reservations_reservation WHERE entry_id = OLD.id) THEN
        RAISE EXCEPTION 'queue entry % has reservations', OLD.id
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'reservation_keeps_its_entry';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER reservation_keeps_its_entry
AFTER DELETE ON queue_queueentry
FOR EACH ROW EXECUTE FUNCTION reservation_keeps_its_entry();
"""
BACKWARD = """
DROP TRIGGER reservation_keeps_its_entry ON queue_queueentry;
DROP FUNCTION reservation_keeps_its_entry();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("events", "__first__"),
        ("queue", "0004_ended_visitors"),
        ("reservations", "0006_told_page"),
    ]

    operations = [
        migrations.RunSQL(FORWARD, BACKWARD),
        migrations.AlterField(
            model_name="reservation",
            name="entry",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="queue.queueentry",
            ),
        ),
        migrations.AlterField(
            model_name="reservation",
            name="event",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="events.event",
            ),
        ),
        migrations.AlterField(
            model_name="reservationline",
            name="reservation",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="lines",
                to="reservations.reservation",
            ),
        ),
        migrations.AlterField(
            model_name="reservationline",
            name="section",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="events.section",
            ),
        ),
        migrations.RemoveIndex(model_name="reservation", name="reservation_by_account"),
        migrations.AddIndex(
            model_name="reservation",
            index=models.Index(
                condition=models.Q(("account__isnull", False)),
                fields=["account", "-created_at"],
                name="reservation_by_account",
            ),
        ),
    ]
