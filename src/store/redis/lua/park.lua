-- PARK: the copy in the dead-letter stream and the ack, or neither. KEYS: 3 the dead-letter stream.
-- ARGV: 6 and 7 the lowest and the highest ID, then for each ID, deliveries, reason, error, and how many
-- arguments of a copy follow: -1 = there is none, -2 = there is one to be asked for.
-- Answers: now, then for each {result}, {FAILED, why}, {5} = send the copy, or
-- {6, last active, fields, reason} = too large for a script.
local WANTED, LARGE = 5, 6
local error = absent() or fence()
if error then
    return error
end
local items, ids, at = {}, {}, 8
while at <= #ARGV do
    local item = {id = ARGV[at], deliveries = tonumber(ARGV[at + 1]), reason = ARGV[at + 2],
        error = ARGV[at + 3], copied = tonumber(ARGV[at + 4]), owner = me}
    at = at + 5
    if item.copied >= 0 then
        item.copy = {}
        for i = 1, item.copied do
            item.copy[i] = ARGV[at + i - 1]
        end
        at = at + item.copied
    end
    items[#items + 1], ids[#ids + 1] = item, item.id
end

local found, answers = held(ids, 6), {}
local function park(item)
    local row = found[item.id]
    if not row or row[1] ~= item.deliveries then
        return {LOST}
    end
    local entry = call('XRANGE', stream, item.id, item.id, 'COUNT', 1)[1]
    local fields = entry and entry[2]
    if not fields then
        if item.copied == -2 then
            return {WANTED}
        end
        if not item.copy then
            call('XACK', stream, group, item.id)
            return {TRIMMED}
        end
        fields, item.reason = item.copy, 'trimmed'
    end
    item.idle = math.max(row[2], 0)
    if #fields > FIELDS_MAX then
        return {LARGE, num(now - item.idle), fields, item.reason}
    end
    local refused = bury(KEYS[3], fields, item)
    if refused then
        return {FAILED, refused}
    end
    call('XACK', stream, group, item.id)
    return {DONE}
end
for i, item in ipairs(items) do
    answers[i] = park(item)
    found[item.id] = nil
end
return {now, answers}
