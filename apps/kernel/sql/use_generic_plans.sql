-- Plans each prepared statement of this session once. PostgreSQL would plan one with a short list anew each time, because it
-- expects longer lists than the one that it gets. Committers set this in each transaction (`set_limits.sql`).
SELECT set_config('plan_cache_mode', 'force_generic_plan', false)
