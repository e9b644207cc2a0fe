-- Opens the gate of one event with counts read from the ledger. Preceded by gate_count.lua.
--
-- KEYS  1 the gate (hash), 2 its marks (sorted set), 3 its latest changes (list)
-- ARGV  1 the gate's epoch, 2 the server's run id before the reading, 3 the server's time in ms before the reading,
--       4 for how many ms after that the counts may refuse, 5 the snapshot with which they were read, 6 the number of
--       changes before the reading, 7… triples of section, tickets left, and upcoming deadlines as
--       "millisecond:quantity …"
-- Returns "open", or why nothing has changed: "lost" (the gate is gone or replaced), "another_server", "later" (it has
-- been opened with a later reading), "late" (the reading is too old by now, or more has changed since than is kept).
--
-- Afterwards: exactly these sections have counts: those of the reading, and every change since that it does not
-- include. The gate is calm if the reading found no section empty. Expired marks are removed.
local gate, marks, changes = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local read_at = tonumber(ARGV[3])
local until_ms = read_at + tonumber(ARGV[4])

local head = redis.call('HMGET', gate, 'epoch', 'read_at', 'change_count')
if head[1] ~= ARGV[1] or not redis.call('ZSCORE', marks, 'epoch ' .. ARGV[1]) then
    return 'lost'
end
if string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') ~= ARGV[2] then
    return 'another_server'
end
-- A later reading in the future was made before the clock was set back: ignore it.
if head[2] and tonumber(head[2]) > read_at and tonumber(head[2]) <= now then
    return 'later'
end
if now < read_at or now >= until_ms then
    return 'late'
end

-- Changes before the reading are in its snapshot: they were reported after their commit.
local since = math.max(0, tonumber(head[3] or 0) - tonumber(ARGV[6]))
local missed = since > 0 and redis.call('LRANGE', changes, -since, -1) or {}
if #missed < since then
    return 'late'
end

local kept = {epoch = true, marked_until = true, marked_at = true, read_at = true, ['until'] = true, server = true,
    snapshot = true, change_count = true}
local calm = true
-- Write before deleting: a server out of memory refuses the first write, and nothing has changed.
for index = 7, #ARGV, 3 do
    local left, lapses = 'left ' .. ARGV[index], 'lapses ' .. ARGV[index]
    redis.call('HSET', gate, left, ARGV[index + 1], lapses, ARGV[index + 2])
    kept[left], kept[lapses] = true, true
    calm = calm and tonumber(ARGV[index + 1]) > 0
end
redis.call('HSET', gate, 'read_at', ARGV[3], 'until', string.format('%.0f', until_ms), 'server', ARGV[2],
    'snapshot', ARGV[5])
if calm then
    redis.call('HSET', gate, 'calm', 1)
    kept.calm = true
end
for _, field in ipairs(redis.call('HKEYS', gate)) do
    if not kept[field] then
        redis.call('HDEL', gate, field)
    end
end
for _, change in ipairs(missed) do
    local transaction, is_lapsed, counts = string.match(change, '^(%d*) (%d) ?(.*)$')
    local is_included = includes(ARGV[5], transaction)
    for section, quantity in string.gmatch(counts, '(%d+):(%-?%d+)') do
        count(gate, section, tonumber(quantity), is_lapsed == '1', is_included, now)
    end
end
redis.call('ZREMRANGEBYSCORE', marks, '-inf', '(' .. string.format('%.0f', now))
return 'open'
