"""Payloads without client secrets; and what the erasure of personal data may change: the buyer in an adjustment, and the
content of an invoice ten years after its year."""

from django.db import migrations, models

ALLOW = """
CREATE OR REPLACE FUNCTION order_adjustment_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.who SIMILAR TO '(visitor|account):%' AND starts_with(NEW.who, 'visitor:erased-')
       AND to_jsonb(NEW) - 'who' = to_jsonb(OLD) - 'who' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'adjustments are append-only'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'order_adjustment_append_only';
END
$$;
CREATE OR REPLACE FUNCTION invoice_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.year + 10 < extract(year FROM clock_timestamp())
       AND to_jsonb(NEW) - 'paper' = to_jsonb(OLD) - 'paper' AND NEW.paper - 'buyer' = OLD.paper - 'buyer' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'an invoice is never changed; corrections are new documents'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'invoice_append_only';
END
$$;
"""
REFUSE = """
CREATE OR REPLACE FUNCTION order_adjustment_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'adjustments are append-only'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'order_adjustment_append_only';
END
$$;
CREATE OR REPLACE FUNCTION invoice_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'an invoice is never changed; corrections are new documents'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'invoice_append_only';
END
$$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0014_plain_help_texts'),
    ]

    operations = [
        migrations.RunSQL(ALLOW, REFUSE),
        migrations.AlterField(
            model_name='providermessage',
            name='next_action',
            field=models.JSONField(blank=True, help_text='What the buyer must do; empty once it is processed.', null=True),
        ),
        migrations.AlterField(
            model_name='providermessage',
            name='raw',
            field=models.BinaryField(help_text='The bytes as received, without client secrets.'),
        ),
    ]
