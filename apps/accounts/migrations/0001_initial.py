"""The accounts, and the trigger that raises an account's version."""

import django.db.models.functions.text
import django.utils.timezone
from django.db import migrations, models

import apps.accounts.models

FORWARD = """
CREATE FUNCTION accounts_raise_token_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
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
CREATE TRIGGER accounts_raise_token_version BEFORE UPDATE ON accounts_user
    FOR EACH ROW EXECUTE FUNCTION accounts_raise_token_version();
"""
BACKWARD = """
DROP TRIGGER accounts_raise_token_version ON accounts_user;
DROP FUNCTION accounts_raise_token_version();
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='User',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('first_name', models.CharField(blank=True, max_length=150, verbose_name='first name')),
                ('last_name', models.CharField(blank=True, max_length=150, verbose_name='last name')),
                ('is_staff', models.BooleanField(default=False, help_text='Designates whether the user can log into this admin site.', verbose_name='staff status')),
                ('is_active', models.BooleanField(default=True, help_text='Designates whether this user should be treated as active. Unselect this instead of deleting accounts.', verbose_name='active')),
                ('date_joined', models.DateTimeField(default=django.utils.timezone.now, verbose_name='date joined')),
                ('username', models.CharField(error_messages={'unique': 'An account with this name already exists.'}, help_text='The email address in lower case. Staff may have a plain name.', max_length=150, unique=True, verbose_name='name')),
                ('email', models.EmailField(blank=True, max_length=150, verbose_name='email address')),
                ('token_version', models.PositiveIntegerField(default=0, editable=False)),
                ('token_version_changed_at', models.DateTimeField(db_index=True, editable=False, null=True)),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
            ],
            options={
                'constraints': [models.UniqueConstraint(condition=models.Q(('email', ''), _negated=True), fields=('email',), name='accounts_user_one_account_per_email', violation_error_message='An account with this email address already exists.'), models.CheckConstraint(condition=models.Q(('email', django.db.models.functions.text.Lower('email'))), name='accounts_user_email_in_lower_case')],
            },
            managers=[
                ('objects', apps.accounts.models.UserManager()),
            ],
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
