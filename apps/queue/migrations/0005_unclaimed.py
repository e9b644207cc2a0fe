from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("queue", "0004_ended_visitors")]

    operations = [
        migrations.AddIndex(
            model_name="queueentry",
            index=models.Index(
                fields=["claim_expires_at"],
                condition=Q(status="ready", admission_expires_at__isnull=True),
                name="queue_entry_unclaimed",
            ),
        ),
    ]
