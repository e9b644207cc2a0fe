-- Keeps the leader's session alive: the server ends an idle session, which releases its lock.
SELECT 1
