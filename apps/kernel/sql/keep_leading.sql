-- The leader is alive: a session that says nothing for a while is ended by the server, and its lock with it.
SELECT 1
