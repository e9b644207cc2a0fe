-- Claims due messages in the order of due times, and only the earliest unsettled message of a key: up to %(limit)s that
-- are handled alone, and the new messages of the topics whose messages are handled in lists, up to their allowance. A
-- message that was claimed before is handled alone. The topics %(others)s are left to other processes. Of those that
-- share threads, %(shared_allowance)s messages at most are claimed in all: first those of topics with the fewest under
-- way. Concurrent claims never wait for each other (SKIP LOCKED). The claim is the row's visibility timeout; no lock is
-- held while the message is handled. Each partition of a topic is searched separately, so that a long backlog hides no
-- other one. Of a topic with messages in several partitions, one of each is claimed before a second. If one of them has
-- several, the partitions are drawn by lot: their due times would favor the longest backlog. At most %(spare)s of a
-- partition's first %(window)s due messages are candidates: more than the limit, as other claims lock some.
-- Messages that were found are read again by their ids, not by the index of pending ones, which also contains those that
-- were settled since the last vacuum: hence coalesce().
-- If none can be claimed although some are due, one row of NULLs is returned: they may be behind others of their keys.
WITH given AS MATERIALIZED (
    SELECT *
    FROM unnest(
        %(topics)s::text[], %(visibilities)s::interval[], %(allowances)s::int[], %(in_lists)s::boolean[],
        %(under_way)s::int[], %(are_shared)s::boolean[]
    ) AS given (name, visibility, allowance, in_list, under_way, is_shared)
),
waiting AS MATERIALIZED (
    SELECT
        waiting.topic,
        waiting.partition,
        count(*) OVER (PARTITION BY waiting.topic) > 1 AS has_others,
        random() AS lot
    FROM outbox_waitingpartition AS waiting
    WHERE waiting.topic <> ALL(%(others)s::text[])
),
found AS (
    SELECT
        waiting.topic,
        head.id,
        head.available_at,
        coalesce(given.in_list, FALSE) AND head.attempts = 0 AS in_list,
        coalesce(given.is_shared, FALSE) AS is_shared,
        given.under_way,
        given.allowance,
        waiting.has_others,
        waiting.lot,
        row_number() OVER (
            PARTITION BY waiting.topic, waiting.partition ORDER BY head.available_at, head.id
        ) AS place
    FROM waiting
    LEFT JOIN given ON given.name = waiting.topic
    CROSS JOIN LATERAL (
        SELECT due.id, due.available_at, due.attempts
        FROM (
            SELECT message.id, message.key, message.available_at, message.attempts
            FROM outbox_outboxmessage AS message
            WHERE message.topic = waiting.topic
              AND message.partition = waiting.partition
              AND message.done_at IS NULL
              AND message.dead_at IS NULL
              AND NOT message.is_behind
              AND message.available_at <= (SELECT clock_timestamp())
              AND (message.claimed_until IS NULL OR message.claimed_until <= clock_timestamp())
            ORDER BY message.available_at, message.id
            LIMIT %(window)s
        ) AS due
        WHERE due.id = (
            SELECT earliest.id
            FROM outbox_outboxmessage AS earliest
            WHERE earliest.topic = waiting.topic
              AND earliest.key = due.key
              AND earliest.done_at IS NULL
              AND earliest.dead_at IS NULL
            ORDER BY earliest.id
            LIMIT 1
        )
        LIMIT CASE
            WHEN given.in_list THEN given.allowance
            -- The second shows that there is a backlog.
            WHEN given.allowance = 1 AND waiting.has_others THEN 2
            ELSE least(%(spare)s, given.allowance)
        END
    ) AS head
),
candidates AS (
    SELECT found.*, max(found.place) OVER (PARTITION BY found.topic) > 1 AS has_backlog
    FROM found
),
heads AS MATERIALIZED (
    SELECT
        candidates.*,
        CASE
            WHEN candidates.has_others THEN min(candidates.available_at) OVER (PARTITION BY candidates.topic)
            ELSE candidates.available_at
        END AS due_at,
        row_number() OVER (
            PARTITION BY candidates.topic
            ORDER BY
                candidates.place,
                CASE WHEN candidates.has_backlog THEN candidates.lot ELSE 0 END,
                candidates.available_at,
                candidates.id
        ) AS rank
    FROM candidates
),
first AS MATERIALIZED (
    SELECT ranked.id, ranked.due_at, ranked.rank, ranked.in_list
    FROM (
        SELECT
            heads.*,
            row_number() OVER (
                PARTITION BY heads.is_shared ORDER BY heads.under_way + heads.rank, heads.due_at, heads.id
            ) AS shared_rank
        FROM heads
        WHERE heads.allowance IS NULL OR heads.rank <= heads.allowance
    ) AS ranked
    WHERE NOT ranked.is_shared OR ranked.shared_rank <= %(shared_allowance)s
),
alone AS (
    SELECT message.id
    FROM first
    JOIN outbox_outboxmessage AS message ON message.id = first.id
    WHERE NOT first.in_list
      AND coalesce(message.done_at, message.dead_at) IS NULL
      AND NOT message.is_behind
      AND message.available_at <= clock_timestamp()
      AND (message.claimed_until IS NULL OR message.claimed_until <= clock_timestamp())
    ORDER BY first.due_at, first.rank, first.id
    LIMIT %(limit)s
    FOR NO KEY UPDATE OF message SKIP LOCKED
),
listed AS (
    SELECT message.id
    FROM first
    JOIN outbox_outboxmessage AS message ON message.id = first.id
    WHERE first.in_list
      AND coalesce(message.done_at, message.dead_at) IS NULL
      AND NOT message.is_behind
      AND message.available_at <= clock_timestamp()
      AND (message.claimed_until IS NULL OR message.claimed_until <= clock_timestamp())
    ORDER BY message.id
    FOR NO KEY UPDATE OF message SKIP LOCKED
),
mine AS (
    SELECT alone.id FROM alone
    UNION ALL
    SELECT listed.id FROM listed
),
claimed AS (
    UPDATE outbox_outboxmessage AS message
    SET claimed_at = clock_timestamp(),
        claimed_until = clock_timestamp()
            + coalesce((SELECT given.visibility FROM given WHERE given.name = message.topic), %(visibility)s),
        receipt = gen_random_uuid(),
        attempts = message.attempts + 1
    FROM mine
    WHERE message.id = mine.id
    RETURNING
        message.id, message.topic, message.key, message.body, message.receipt, message.attempts, message.created_at,
        message.available_at
)
SELECT id, topic, key, body, receipt, attempts, created_at, available_at
FROM claimed
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (SELECT FROM mine)
  AND EXISTS (
      SELECT
      FROM waiting
      LEFT JOIN given ON given.name = waiting.topic
      CROSS JOIN LATERAL (
          SELECT
          FROM outbox_outboxmessage AS message
          WHERE message.topic = waiting.topic
            AND message.partition = waiting.partition
            AND message.done_at IS NULL
            AND message.dead_at IS NULL
            AND NOT message.is_behind
            AND message.available_at <= (SELECT clock_timestamp())
            AND (message.claimed_until IS NULL OR message.claimed_until <= clock_timestamp())
          LIMIT 1
      ) AS due
      WHERE given.allowance IS DISTINCT FROM 0
  )
