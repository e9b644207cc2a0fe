-- Keeps the leader's session alive: the server ends a silent session, and its lock with it.
SELECT 1
