"""What was done to the inventory cannot be rewritten either."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION inventory_change_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the record of inventory changes is append-only'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'inventory_change_append_only';
END
$$;
CREATE TRIGGER inventory_change_append_only
BEFORE UPDATE OR DELETE ON reservations_inventorychange
FOR EACH ROW EXECUTE FUNCTION inventory_change_append_only();
"""
BACKWARD = """
DROP TRIGGER inventory_change_append_only ON reservations_inventorychange;
DROP FUNCTION inventory_change_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("reservations", "0003_inventory_at_full_strength")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
