from django.db import migrations, models

FILL = """
UPDATE orders_order AS sold
SET handed_over_at = (
    SELECT max(entry.at)
    FROM orders_orderhistoryentry AS entry
    WHERE entry.order_id = sold.id AND entry.kind = 'corrected'
)
WHERE sold.is_handed_over
"""


class Migration(migrations.Migration):
    dependencies = [("orders", "0040_origin")]

    operations = [
        migrations.AddField(
            model_name="order",
            name="handed_over_at",
            field=models.DateTimeField(
                blank=True,
                help_text="When they last gave it, or changed its address: what is older is about a former owner.",
                null=True,
            ),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
