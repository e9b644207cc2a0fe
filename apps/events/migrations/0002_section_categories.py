from django.db import migrations, models

# What publication writes from now on, for the events published before.
LINK = """
INSERT INTO events_section_categories (section_id, category_id)
SELECT DISTINCT section_id, category_id FROM events_seat
UNION
SELECT section.id, section.category_id
FROM events_section AS section
JOIN events_event AS event ON event.id = section.event_id
WHERE section.category_id IS NOT NULL AND event.status <> 'draft'
"""


class Migration(migrations.Migration):
    dependencies = [("events", "0001_initial")]
    operations = [
        migrations.AddField(
            model_name="section",
            name="categories",
            field=models.ManyToManyField(
                blank=True,
                help_text="Whose prices are found in it; written at publication.",
                related_name="+",
                to="events.category",
            ),
        ),
        migrations.RunSQL(LINK, migrations.RunSQL.noop),
    ]
