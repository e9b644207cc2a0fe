-- The version of each owner's recent searches, and whether searches are saved.
SELECT owner, id, version, stamp, is_on FROM events_searchhistory WHERE owner = ANY(%(owners)s::text[])
