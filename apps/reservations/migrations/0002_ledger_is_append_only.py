"""The ledger of transitions cannot be rewritten: the database refuses, whoever asks."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION reservation_transition_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger of transitions is append-only'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'reservation_transition_append_only';
END
$$;
CREATE TRIGGER reservation_transition_append_only
BEFORE UPDATE OR DELETE ON reservations_reservationtransition
FOR EACH ROW EXECUTE FUNCTION reservation_transition_append_only();
"""
BACKWARD = """
DROP TRIGGER reservation_transition_append_only ON reservations_reservationtransition;
DROP FUNCTION reservation_transition_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("reservations", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
