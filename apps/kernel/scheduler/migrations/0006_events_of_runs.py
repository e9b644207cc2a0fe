from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0005_indexes_of_turns")]

    operations = [
        migrations.AddField(
            model_name="taskrun",
            name="event_id",
            field=models.BigIntegerField(blank=True, help_text="Of its task; empty: the whole site.", null=True),
        ),
    ]
