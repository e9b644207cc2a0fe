-- A value that differs after each commit that may have changed a public page.
-- No maximum: a transaction with a lower id may commit after one with a higher id. Old rows are removed long after every
-- transaction that began before them has ended, so removals never restore an earlier value.
SELECT count(*)::text || ':' || coalesce(sum(id), 0)::text FROM kernel_pagechange
