-- Gives up to %(limit)s runs that have become due their turns, in the order of which executors start them. In a turn each
-- organizer has one run (the whole site counts as one): a run joins the present turn, which is that of the run that was
-- started last, or the turn after its organizer's last run that waits or is running. So the runs of an organizer delay its
-- own ones only. Concurrent pickers pass over what another one is giving a turn (SKIP LOCKED). They do not see the turns
-- of each other before the commit, so an organizer may have two runs in a turn: this changes the order only.
WITH due AS MATERIALIZED (
    SELECT run.id, run.organizer_id, run.due_at
    FROM scheduler_taskrun AS run
    WHERE run.state = 'picked' AND run.turn IS NULL AND run.due_at <= (SELECT clock_timestamp())
    ORDER BY run.due_at, run.id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
),
organizer AS MATERIALIZED (
    SELECT
        one.organizer_id,
        greatest(
            coalesce(
                (SELECT max(run.turn) FROM scheduler_taskrun AS run WHERE run.state = 'running'),
                (SELECT min(run.turn) FROM scheduler_taskrun AS run WHERE run.turn IS NOT NULL),
                0
            ),
            (
                SELECT max(run.turn) + 1
                FROM scheduler_taskrun AS run
                WHERE run.state IN ('picked', 'running') AND run.organizer_id = one.organizer_id
            )
        ) AS turn
    FROM (SELECT DISTINCT due.organizer_id FROM due) AS one
),
numbered AS (
    SELECT
        due.id,
        organizer.turn + row_number() OVER (PARTITION BY due.organizer_id ORDER BY due.due_at, due.id) - 1 AS turn
    FROM due
    JOIN organizer ON organizer.organizer_id = due.organizer_id
)
UPDATE scheduler_taskrun AS run
SET turn = numbered.turn
FROM numbered
WHERE run.id = numbered.id
