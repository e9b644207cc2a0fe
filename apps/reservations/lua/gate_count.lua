-- Functions of gate_note.lua and gate_open.lua, which are loaded behind this file: whether a reading of the ledger
-- includes a change, and what the change does to the counts if it does not.
--
-- KEYS  those of the command
-- ARGV  those of the command
-- Returns nothing: the command does
-- Afterwards: nothing has changed until the command calls `count`, which changes one section's count.

-- Returns whether a snapshot of PostgreSQL ("xmin:xmax:running,…") includes the transaction; nil if either is unknown.
local function includes(snapshot, transaction)
    local xmin, xmax, running = string.match(snapshot or '', '^(%d+):(%d+):(.*)$')
    local id = tonumber(transaction)
    if not xmin or not id then
        return nil
    end
    if id < tonumber(xmin) then
        return true
    end
    return id < tonumber(xmax) and not string.find(',' .. running .. ',', ',' .. transaction .. ',', 1, true)
end

-- Adds the quantity (negative: taken) to the section's count, not below zero. `is_included`: as returned by `includes`.
-- If that is unknown, only what raises a count is added: too high a count costs a query, too low a one refuses.
local function count(gate, section, quantity, is_lapsed, is_included, now)
    local known = redis.call('HMGET', gate, 'left ' .. section, 'lapses ' .. section, 'ended ' .. section)
    if not known[1] or is_included then
        return
    end
    if is_included == nil and quantity < 0 then
        redis.call('HSET', gate, 'moved', 1, 'wanted', 1)
        return
    end
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
    if is_lapsed and is_included == false and lapsed > ended then
        redis.call('HSET', gate, 'ended ' .. section, math.min(lapsed, ended + quantity), 'wanted', 1)
    end
end
