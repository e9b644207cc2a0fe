"""A trigger that notes changes of the refund terms on an event's page (`apps.kernel.page_cache.version`)."""

from django.db import migrations

FORWARD = """
CREATE TRIGGER kernel_note_page_change AFTER INSERT OR UPDATE OR DELETE ON orders_returnpolicy
    FOR EACH STATEMENT EXECUTE FUNCTION kernel_note_page_change();
"""
BACKWARD = "DROP TRIGGER kernel_note_page_change ON orders_returnpolicy;"


class Migration(migrations.Migration):

    dependencies = [
        ('kernel', '0008_changes_of_pages'),
        ('orders', '0032_history_of_address'),
    ]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
