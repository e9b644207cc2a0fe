-- Asks the gate of one event whether a request is refused.
--
-- KEYS  1 the gate (hash), 2 its marks (sorted set: who is never refused, by the millisecond at which that ends)
-- ARGV  1 the entry's mark, 2 the request's mark, 3 how long the request's mark lasts in ms, 4… the sections wanted
-- Returns {answer, section…}: "refused" and those sections that have nothing left; or why nobody is refused: "left",
-- "known" (the entry holds or held something, or this very request is under way), "lapsed" (what has passed its
-- deadline may be free again), "unloaded", "shut", "stale", "another_server".
--
-- Afterwards: a refusal has changed nothing. A request let through is marked, so that asking again for an answer that
-- was lost is never refused.
local gate, marks = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local head = redis.call('HMGET', gate, 'epoch', 'read_at', 'until', 'server')
if not head[1] or not redis.call('ZSCORE', marks, 'epoch ' .. head[1]) then
    return {'unloaded'}
end

local function let_through(why)
    redis.call('ZADD', marks, 'GT', string.format('%.0f', now + ARGV[3]), ARGV[2])
    return {why}
end

if not head[3] then
    return let_through('shut')
end
-- Before the moment of its reading: a clock was set back, and how old it is cannot be told.
if now < tonumber(head[2]) or now >= tonumber(head[3]) then
    return let_through('stale')
end

local names = {}
for place = 4, #ARGV do
    names[#names + 1] = 'left ' .. ARGV[place]
end
local empty = {}
for place, left in ipairs(redis.call('HMGET', gate, unpack(names))) do
    if left and tonumber(left) <= 0 then
        empty[#empty + 1] = ARGV[place + 3]
    end
end
if #empty == 0 then
    return let_through('left')
end

local known = redis.call('ZMSCORE', marks, ARGV[1], ARGV[2])
if (known[1] and tonumber(known[1]) > now) or (known[2] and tonumber(known[2]) > now) then
    return let_through('known')
end

for _, section in ipairs(empty) do
    local waiting = redis.call('HMGET', gate, 'lapses ' .. section, 'ended ' .. section)
    local lapsed = 0
    for at, quantity in string.gmatch(waiting[1] or '', '(%d+):(%d+)') do
        if tonumber(at) <= now then
            lapsed = lapsed + tonumber(quantity)
        end
    end
    if lapsed > tonumber(waiting[2] or 0) then
        return let_through('lapsed')
    end
end

-- Asked last: it is the dearest, and only a refusal needs it.
if head[4] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') then
    return let_through('another_server')
end
return {'refused', unpack(empty)}
