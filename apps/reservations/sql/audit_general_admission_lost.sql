-- I1: general-admission rows without a general-admission section, or several rows of one section.
SELECT row.event_id, row.section_id, row.capacity, row.taken, row.count
FROM (SELECT *, count(*) OVER (PARTITION BY section_id) AS count
      FROM reservations_generaladmissioninventory) AS row
LEFT JOIN events_section AS section ON section.id = row.section_id AND section.kind = 'general_admission'
WHERE (section.id IS NULL OR row.count > 1)
  AND (%(event_id)s::bigint IS NULL OR row.event_id = %(event_id)s)
