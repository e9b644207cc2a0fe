"""A transaction notes once that it changed what public pages show, not with each of its statements."""

from django.db import migrations

FORWARD = """
CREATE OR REPLACE FUNCTION kernel_note_page_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- The setting ends with the transaction, and is undone with the savepoint after which the row was written.
    IF current_setting('fairgate.noted_page_change', true) IS DISTINCT FROM pg_current_xact_id()::text THEN
        INSERT INTO kernel_pagechange (at) VALUES (clock_timestamp());
        PERFORM set_config('fairgate.noted_page_change', pg_current_xact_id()::text, true);
    END IF;
    RETURN NULL;
END $$;
"""
BACKWARD = """
CREATE OR REPLACE FUNCTION kernel_note_page_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO kernel_pagechange (at) VALUES (clock_timestamp());
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('kernel', '0009_domains_that_accept_mails'),
    ]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
