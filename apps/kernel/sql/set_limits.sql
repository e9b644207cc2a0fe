-- Sets this transaction's timeouts: for lock waits, for one statement, and for idling between two. Prepared statements
-- use one plan for all values, since planning for each set of values costs as much as the work itself.
SELECT set_config('lock_timeout', %(lock)s::text, true), set_config('statement_timeout', %(statement)s::text, true),
       set_config('idle_in_transaction_session_timeout', %(idle)s::text, true),
       set_config('plan_cache_mode', 'force_generic_plan', true)
