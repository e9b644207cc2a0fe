-- Asks the gate of one event which of these requests are refused.
--
-- KEYS  1 the gate (hash), 2 its marks (sorted set: entries and requests never refused; score: expiry in ms)
-- ARGV  1 lifetime of a request's mark in ms; then for each request: the entry's mark, the request's mark, the number
--       of requested sections and their ids; the number is negative if the request lacks an access code for one of
--       them, and "any N" if one of its sections is enough: such a request is refused if all are sold out
-- Returns for each request {answer, section…}: "refused" and its sold-out sections (a request without a needed code is
-- refused whatever is left); or the reason to let it through: "left", "known" (the entry has or had a hold, or the same
-- request is in progress), "lapsed" (overdue reservations may free tickets), "unloaded", "shut", "stale",
-- "another_server".
--
-- Afterwards: a refusal has changed nothing. A request let through is marked, so that its retry after a lost response
-- is never refused.
local gate, marks = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mark_until = string.format('%.0f', now + ARGV[1])

local head = redis.call('HMGET', gate, 'epoch', 'read_at', 'until', 'server')
local loaded = head[1] and redis.call('ZSCORE', marks, 'epoch ' .. head[1])
-- A reading in the future means that the clock was set back: its age is unknown.
local stale = head[3] and (now < tonumber(head[2]) or now >= tonumber(head[3]))

-- Checked last and once: INFO is the most expensive call, and only a refusal needs it.
local same_server
local function is_same_server()
    if same_server == nil then
        same_server = head[4] == string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
    end
    return same_server
end

-- Per section, read once: whether it is sold out, and whether overdue reservations may free tickets there.
local is_empty, has_lapsed = {}, {}
local function lapsed_in(section)
    if has_lapsed[section] == nil then
        local waiting = redis.call('HMGET', gate, 'lapses ' .. section, 'ended ' .. section)
        local lapsed = 0
        for at, quantity in string.gmatch(waiting[1] or '', '(%d+):(%d+)') do
            if tonumber(at) <= now then
                lapsed = lapsed + tonumber(quantity)
            end
        end
        has_lapsed[section] = lapsed > tonumber(waiting[2] or 0)
    end
    return has_lapsed[section]
end

local function verdict(entry, request, sections, lacks_code, is_any)
    if not head[3] then
        return {'shut'}
    end
    if stale then
        return {'stale'}
    end
    local empty = {}
    for _, section in ipairs(sections) do
        if is_empty[section] == nil then
            local left = redis.call('HGET', gate, 'left ' .. section)
            is_empty[section] = left and tonumber(left) <= 0 or false
        end
        if is_empty[section] then
            empty[#empty + 1] = section
        end
    end
    if (#empty == 0 and not lacks_code) or (is_any and #empty < #sections) then
        return {'left'}
    end
    local known = redis.call('ZMSCORE', marks, entry, request)
    if (known[1] and tonumber(known[1]) > now) or (known[2] and tonumber(known[2]) > now) then
        return {'known'}
    end
    for _, section in ipairs(lacks_code and {} or empty) do
        if lapsed_in(section) then
            return {'lapsed'}
        end
    end
    if not is_same_server() then
        return {'another_server'}
    end
    return {'refused', unpack(empty)}
end

local verdicts = {}
local index = 2
while index <= #ARGV do
    local entry, request, wanted = ARGV[index], ARGV[index + 1], tonumber(ARGV[index + 2])
    local is_any = not wanted
    if is_any then
        wanted = tonumber(string.match(ARGV[index + 2], '%d+'))
    end
    local count = math.abs(wanted)
    local sections = {}
    for offset = 1, count do
        sections[offset] = ARGV[index + 2 + offset]
    end
    index = index + 3 + count
    if not loaded then
        verdicts[#verdicts + 1] = {'unloaded'}
    else
        local answer = verdict(entry, request, sections, wanted < 0, is_any)
        if answer[1] ~= 'refused' then
            redis.call('ZADD', marks, 'GT', mark_until, request)
        end
        verdicts[#verdicts + 1] = answer
    end
end
return verdicts
