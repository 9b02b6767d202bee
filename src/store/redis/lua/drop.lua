-- Deletes a consumer that holds nothing and is not alive. ARGV: 6 its name, 7 for one that is not in
-- the table: how long it has to have been inactive, -1 = never. Answers: now, "1" if it is gone.
local error = absent()
if error then
    return error
end
local result, why = beat(false)
if not result then
    return why
end
if result == OCCUPIED then
    return replaced()
end
local name, inactive = ARGV[6], tonumber(ARGV[7])
local row = row_read(call('HGET', tab, 'w:' .. name))

local function may_go()
    if pending_of(name) > 0 then
        return false
    end
    if row then
        return state_of(name, row) == DEAD
    end
    if inactive < 0 then
        return false
    end
    local found, newest = nil, nil
    for _, reply in ipairs(call('XINFO', 'CONSUMERS', stream, group)) do
        local info = {}
        for i = 1, #reply, 2 do
            info[reply[i]] = reply[i + 1]
        end
        if info['name'] == name then
            found = info
        else
            newest = math.min(newest or info['idle'], info['idle'])
        end
    end
    if not found or found['pending'] > 0 or found['idle'] < inactive then
        return false
    end
    -- Before 7.2 `idle` counts from the last entry that the consumer got, however often it asked: then
    -- its silence means something only if others of the group were given entries since, for as long.
    return found['inactive'] ~= nil or inactive == 0 or
        (newest ~= nil and found['idle'] - newest >= inactive)
end
if not may_go() then
    return {now, 0}
end
remove_worker(name, row)
return {now, 1}
