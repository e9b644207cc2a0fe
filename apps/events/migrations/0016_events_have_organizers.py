# In a migration of its own: PostgreSQL alters no table with pending foreign key checks, which the assignment leaves.

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("events", "0015_default_organizer")]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="organizer",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="events", to="events.organizer"
            ),
        ),
        migrations.AlterField(
            model_name="seatingplan",
            name="organizer",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="plans", to="events.organizer"
            ),
        ),
    ]
