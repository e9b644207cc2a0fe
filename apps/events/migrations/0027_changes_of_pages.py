"""Triggers that note changes of what public pages show (`apps.kernel.page_cache.version`)."""

from django.db import migrations

TABLES = (
    'events_announcementfeed', 'events_category', 'events_event', 'events_legalpage', 'events_onsale', 'events_organizer',
    'events_seat', 'events_seatingplan', 'events_section', 'events_section_categories', 'events_venue',
)
FORWARD = """
CREATE TRIGGER kernel_note_page_change AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION kernel_note_page_change();
"""
BACKWARD = "DROP TRIGGER kernel_note_page_change ON {table};"


class Migration(migrations.Migration):

    dependencies = [
        ('events', '0026_short_names'),
        ('kernel', '0008_changes_of_pages'),
    ]

    operations = [migrations.RunSQL(FORWARD.format(table=table), BACKWARD.format(table=table)) for table in TABLES]
