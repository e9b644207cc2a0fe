-- Update the state of a charge of the sandbox, which the caller has locked.
UPDATE orders_sandboxcharge
SET status = %(status)s, occurred_at = %(occurred_at)s, then_status = %(then_status)s, then_at = %(then_at)s
WHERE id = %(charge_id)s
