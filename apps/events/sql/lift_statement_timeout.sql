-- Lets the next statements of this session take any time.
SELECT set_config('statement_timeout', '0', false)
