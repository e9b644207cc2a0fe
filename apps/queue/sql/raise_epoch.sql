-- Gives a new leader, which holds the leadership's advisory lock, an epoch above all earlier ones.
INSERT INTO queue_leadership (name, epoch, leader, elected_at)
VALUES (%(name)s, 1, %(leader)s, clock_timestamp())
ON CONFLICT (name) DO UPDATE
SET epoch = queue_leadership.epoch + 1, leader = excluded.leader, elected_at = excluded.elected_at
RETURNING epoch
