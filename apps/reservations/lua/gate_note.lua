-- Updates the gate of one event after a commit.
--
-- KEYS  1 the gate (hash), 2 its marks (sorted set)
-- ARGV  1 lifetime of an entry's mark in ms, 2 whether the freed tickets belonged to overdue reservations: 1 or 0,
--       3 number of entries, then the entries' marks, then pairs of section and quantity: freed, or negative if taken
-- Returns 1, or 0 if there is no gate.
--
-- Afterwards: the counts include the change (not below zero), and the entries are marked: both or neither. The counts
-- hold until the next reset, the marks at least as long. Tickets freed by expiry are subtracted from the overdue
-- quantity; those that a buyer released or staff put on sale are not. The gate requests an early reset if an overdue
-- reservation ended, since only the ledger has the next deadlines, or if a section became empty: it now refuses.
local gate, marks = KEYS[1], KEYS[2]
if redis.call('EXISTS', gate, marks) < 2 then
    return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local has_lapsed, entries = ARGV[2] == '1', tonumber(ARGV[3])
for index = 4, 3 + entries do
    redis.call('ZADD', marks, 'GT', string.format('%.0f', now + ARGV[1]), ARGV[index])
end

for index = 4 + entries, #ARGV, 2 do
    local section, quantity = ARGV[index], tonumber(ARGV[index + 1])
    local known = redis.call('HMGET', gate, 'left ' .. section, 'lapses ' .. section, 'ended ' .. section)
    if known[1] then
        local left = math.max(0, tonumber(known[1]) + quantity)
        redis.call('HSET', gate, 'left ' .. section, left, 'moved', 1)
        if left == 0 and tonumber(known[1]) > 0 then
            redis.call('HSET', gate, 'wanted', 1)
        end
        local lapsed, ended = 0, tonumber(known[3] or 0)
        for at, lapsing in string.gmatch(known[2] or '', '(%d+):(%d+)') do
            if tonumber(at) <= now then
                lapsed = lapsed + tonumber(lapsing)
            end
        end
        if has_lapsed and lapsed > ended then
            redis.call('HSET', gate, 'ended ' .. section, math.min(lapsed, ended + quantity), 'wanted', 1)
        end
    end
end
return 1
