"""Adds a function that raises SQLSTATE FG001 if a write changed an unexpected number of rows."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION fairgate_check_rowcount(actual bigint, expected bigint, what text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF actual IS DISTINCT FROM expected THEN
        RAISE EXCEPTION '%: % rows instead of %', what, actual, expected USING ERRCODE = 'FG001';
    END IF;
    RETURN actual;
END
$$;
"""
BACKWARD = "DROP FUNCTION fairgate_check_rowcount(bigint, bigint, text);"


class Migration(migrations.Migration):
    dependencies = [("kernel", "0004_plain_help_texts")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
