-- Updates the gate of one event after a commit. Preceded by gate_count.lua.
--
-- KEYS  1 the gate (hash), 2 its marks (sorted set), 3 its latest changes (list)
-- ARGV  1 lifetime of an entry's mark in ms, 2 lifetime of the list in ms, 3 its maximum length, 4 the id of the
--       transaction that committed the change (empty: unknown), 5 whether the freed tickets belonged to overdue
--       reservations: 1 or 0, 6 number of entries, then the entries' marks, then pairs of section and quantity: freed,
--       or negative if taken
-- Returns 1, or 0 if there is no gate.
--
-- Afterwards: the counts include the change exactly once (not below zero): a change that the reading in force includes
-- is not added again, and the list keeps it for a reading that is not in force yet. The entries are marked: all of this
-- or nothing. The counts hold until the next reset, the marks at least as long. Tickets freed by expiry are subtracted
-- from the overdue quantity; those that a buyer released or staff put on sale are not. The gate requests an early reset
-- if an overdue reservation ended, since only the ledger has the next deadlines, or if a section became empty: it now
-- refuses.
local gate, marks, changes = KEYS[1], KEYS[2], KEYS[3]
if redis.call('EXISTS', gate, marks) < 2 then
    return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local transaction, is_lapsed, entries = ARGV[4], ARGV[5] == '1', tonumber(ARGV[6])
for index = 7, 6 + entries do
    redis.call('ZADD', marks, 'GT', string.format('%.0f', now + ARGV[1]), ARGV[index])
end

local is_included = includes(redis.call('HGET', gate, 'snapshot'), transaction)
local change = {transaction, ARGV[5]}
for index = 7 + entries, #ARGV, 2 do
    change[#change + 1] = ARGV[index] .. ':' .. ARGV[index + 1]
    count(gate, ARGV[index], tonumber(ARGV[index + 1]), is_lapsed, is_included, now)
end
redis.call('HINCRBY', gate, 'change_count', 1)
if redis.call('RPUSH', changes, table.concat(change, ' ')) > tonumber(ARGV[3]) then
    redis.call('LTRIM', changes, -tonumber(ARGV[3]), -1)
end
redis.call('PEXPIRE', changes, ARGV[2])
return 1
