"""Erased accounts: their time, and a trigger that leaves them unchanged; an index on the names of the security log."""

from django.db import migrations, models

FUNCTION = """
CREATE OR REPLACE FUNCTION accounts_raise_token_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    %s
    IF NEW.password IS DISTINCT FROM OLD.password
        OR NEW.is_active IS DISTINCT FROM OLD.is_active
        OR NEW.token_version > OLD.token_version
    THEN
        NEW.token_version := OLD.token_version + 1;
        NEW.token_version_changed_at := clock_timestamp();
    ELSE
        -- A row that was read before another change is written back with an outdated version.
        NEW.token_version := OLD.token_version;
        NEW.token_version_changed_at := OLD.token_version_changed_at;
    END IF;
    RETURN NEW;
END
$$;
"""
ERASED_STAYS = """-- A request that read the row before its erasure must not write the personal data back.
    IF OLD.erased_at IS NOT NULL THEN
        RETURN OLD;
    END IF;"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_security_log")]
    operations = [
        migrations.AddField(
            model_name='user',
            name='erased_at',
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AlterField(
            model_name='securityevent',
            name='kind',
            field=models.CharField(choices=[('signed_up', 'signed up'), ('logged_in', 'logged in'), ('log_in_failed', 'wrong name or password'), ('code_wrong', 'wrong one-time code'), ('tokens_issued', 'tokens issued to an API client'), ('logged_out', 'logged out'), ('logged_out_everywhere', 'logged out everywhere'), ('password_changed', 'password changed'), ('password_reset', 'password reset by mail'), ('email_changed', 'email address changed'), ('second_factor_added', 'second factor added'), ('second_factor_removed', 'second factor removed'), ('recovery_codes_created', 'new recovery codes'), ('second_factor_reset', 'second factors reset by an operator'), ('staff_action', 'action of staff'), ('personal_data_read', 'personal data read by staff'), ('data_downloaded', 'own personal data downloaded'), ('account_erased', 'account erased')], max_length=30),
        ),
        migrations.AddIndex(
            model_name='securityevent',
            index=models.Index(fields=['name', '-id'], name='accounts_security_event_name'),
        ),
        migrations.RunSQL(FUNCTION % ERASED_STAYS, FUNCTION % ""),
    ]
