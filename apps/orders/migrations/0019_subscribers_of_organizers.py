import django.db.models.deletion
from django.db import migrations, models

HELP = "All events of this organizer. Choose an organizer or an event; neither: all events of the site."


def _organizer():
    return models.ForeignKey(
        blank=True,
        help_text=HELP,
        null=True,
        on_delete=django.db.models.deletion.PROTECT,
        related_name="+",
        to="events.organizer",
    )


def _event():
    return models.ForeignKey(
        blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="events.event"
    )


def _one_subject(name):
    return models.CheckConstraint(condition=models.Q(("event", None), ("organizer", None), _connector="OR"), name=name)


class Migration(migrations.Migration):
    dependencies = [("events", "0016_events_have_organizers"), ("orders", "0018_order_email_index")]

    operations = [
        migrations.AddField("webhookendpoint", "organizer", _organizer()),
        migrations.AddField("feedkey", "organizer", _organizer()),
        migrations.AlterField("webhookendpoint", "event", _event()),
        migrations.AlterField("feedkey", "event", _event()),
        migrations.AddConstraint("webhookendpoint", _one_subject("webhook_endpoint_one_subject")),
        migrations.AddConstraint("feedkey", _one_subject("feed_key_one_subject")),
    ]
