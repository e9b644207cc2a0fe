-- Tells the gate of one event what was committed.
--
-- KEYS  1 the gate (hash), 2 its marks (sorted set)
-- ARGV  1 how long an entry's mark lasts in ms, 2 whether what came free had lapsed: 1 or 0, 3 how many entries follow,
--       then the entries' marks, then pairs of section and quantity: what came free, or below zero what was taken
-- Returns 1, or 0 where there is no gate.
--
-- Afterwards: the sections' counts have moved, never below zero, which the gate knows until it is reset, and the entries
-- are marked for that long at least: both or neither. What came free of what has lapsed is counted against it; what a
-- buyer gave back or staff put on sale leaves the rest as lapsed as it was. The gate asks to be reset soon where something
-- lapsed ended, since only the ledger knows what lapses next, and where a section became empty, since from now on its
-- count refuses.
local gate, marks = KEYS[1], KEYS[2]
if redis.call('EXISTS', gate, marks) < 2 then
    return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local has_lapsed, entries = ARGV[2] == '1', tonumber(ARGV[3])
for place = 4, 3 + entries do
    redis.call('ZADD', marks, 'GT', string.format('%.0f', now + ARGV[1]), ARGV[place])
end

for place = 4 + entries, #ARGV, 2 do
    local section, quantity = ARGV[place], tonumber(ARGV[place + 1])
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
