"""The erasure of personal data may replace a buyer in the ledger of transitions by a random one, and change nothing
else."""

from django.db import migrations

ALLOW = """
CREATE OR REPLACE FUNCTION reservation_transition_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.who SIMILAR TO '(visitor|account):%' AND starts_with(NEW.who, 'visitor:erased-')
       AND to_jsonb(NEW) - 'who' = to_jsonb(OLD) - 'who' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the ledger of transitions is append-only'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'reservation_transition_append_only';
END
$$;
"""
REFUSE = """
CREATE OR REPLACE FUNCTION reservation_transition_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger of transitions is append-only'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'reservation_transition_append_only';
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("reservations", "0010_plain_help_texts")]
    operations = [migrations.RunSQL(ALLOW, REFUSE)]
