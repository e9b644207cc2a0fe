-- The limits of this transaction: for the wait for a lock, for one statement, and for idling between two. What is kept
-- prepared has one plan for all values: to weigh each time whether these deserve their own costs as much as the work.
SELECT set_config('lock_timeout', %(lock)s::text, true), set_config('statement_timeout', %(statement)s::text, true),
       set_config('idle_in_transaction_session_timeout', %(idle)s::text, true),
       set_config('plan_cache_mode', 'force_generic_plan', true)
