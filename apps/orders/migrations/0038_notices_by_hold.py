from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0037_feeds_of_keys'),
    ]

    operations = [
        migrations.RenameField(model_name='schedulenotice', old_name='orders_until', new_name='held_until'),
        migrations.AlterField(
            model_name='schedulenotice',
            name='held_until',
            field=models.DateTimeField(help_text='Orders whose seats were reserved until then get a mail: their buyers may not have seen the change.'),
        ),
    ]
