"""Assign existing events and seating plans to the default organizer."""

from django.db import migrations


def assign_default_organizer(apps, schema_editor):
    event, plan = apps.get_model("events", "Event"), apps.get_model("events", "SeatingPlan")
    events, plans = event.objects.filter(organizer=None), plan.objects.filter(organizer=None)
    if not (events.exists() or plans.exists()):
        return  # An empty database gets the default organizer with its first event.
    organizer, _ = apps.get_model("events", "Organizer").objects.get_or_create(
        slug="default", defaults={"name": "Default organizer"}
    )
    events.update(organizer=organizer)
    plans.update(organizer=organizer)


class Migration(migrations.Migration):
    dependencies = [("events", "0014_organizers")]

    operations = [migrations.RunPython(assign_default_organizer, migrations.RunPython.noop)]
