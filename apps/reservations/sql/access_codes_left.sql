-- How many more queue entries each of these access codes with a limit may open: its uses, less its live and confirmed
-- reservations, and less the live entries that it has opened and that have none of these. The caller holds the room's
-- lock, under which all entries are opened; it is about to end those of ended_ids. A reservation and its entry are read in one snapshot, so an entry that holds
-- or ends meanwhile is counted once.
SELECT int8send(code.id), code.uses_max - uses.use_count - opened.entry_count
FROM reservations_accesscode AS code
CROSS JOIN LATERAL (
    SELECT count(*)::bigint AS use_count
    FROM reservations_reservation AS used
    WHERE used.access_code_id = code.id AND used.status IN ('pending_payment', 'paying', 'confirmed')
) AS uses
CROSS JOIN LATERAL (
    SELECT count(*)::bigint AS entry_count
    FROM queue_queueentry AS entry
    WHERE entry.presale_key = int8send(code.id)
      AND entry.status IN ('waiting', 'review', 'ready', 'away')
      AND entry.id <> ALL (%(ended_ids)s::uuid[])
      AND NOT EXISTS (
        SELECT
        FROM reservations_reservation AS used
        WHERE used.entry_id = entry.id
          AND used.access_code_id = code.id
          AND used.status IN ('pending_payment', 'paying', 'confirmed')
      )
) AS opened
WHERE code.id = ANY(%(code_ids)s::bigint[]) AND code.uses_max IS NOT NULL
