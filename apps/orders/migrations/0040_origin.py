from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0039_handed_over_orders")]

    operations = [
        migrations.AddField(
            model_name="order",
            name="origin",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Keyed digest of the network that checked out, for turns of mails; blank once paid or ended.",
                max_length=16,
            ),
        ),
    ]
