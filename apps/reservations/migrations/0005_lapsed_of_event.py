from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("reservations", "0004_inventory_changes_are_append_only")]

    operations = [
        migrations.AddIndex(
            model_name="reservation",
            index=models.Index(
                condition=models.Q(("status", "pending_payment")),
                fields=["event", "expires_at"],
                name="reservation_pending_of_event",
            ),
        ),
        migrations.AddIndex(
            model_name="reservation",
            index=models.Index(
                condition=models.Q(("status", "paying")),
                fields=["event", "pay_deadline"],
                name="reservation_paying_of_event",
            ),
        ),
    ]
