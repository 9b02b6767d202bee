-- Removes what every group has finished with. ARGV: 6 how many entries stay at least, 7 the ID from
-- which all stay, 8 how many may go in this step, then the groups that are not asked.
-- Answers: now, how many went, "1" if there may be more, the first entry that is not finished.
local length_min, target, limit = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])

local reply = try('XINFO', 'GROUPS', stream)
if is_error(reply) then
    local missing = string.find(reply.err, 'no such key', 1, true)
    return missing and redis.error_reply('NOGROUP no such stream') or reply
end
local ignored, floor = {}, nil
for i = 9, #ARGV do
    ignored[ARGV[i]] = true
end
for _, each in ipairs(reply) do
    local info = named(each)
    if not ignored[info['name']] then
        local first = call('XPENDING', stream, info['name'], '-', '+', 1)[1]
        local next = next_id(info['last-delivered-id']) or SEQ_MAX .. '-' .. SEQ_MAX
        -- A pending entry may lie behind last-delivered: a group can be moved back.
        local mine = first and less(first[1], next) and first[1] or next
        floor = floor and less(floor, mine) and floor or mine
    end
end
if not floor then
    return redis.error_reply('NOGROUP no group says what is finished')
end
target = less(floor, target) and floor or target

local spare = call('XLEN', stream) - length_min
if spare <= 0 then
    return {now, 0, 0, floor}
end
if old then
    -- XTRIM knows no MINID there: the entries below are counted, and so many go.
    local rows = call('XRANGE', stream, '-', previous_id(target), 'COUNT', num(math.min(spare, limit, 1000)))
    if #rows > 0 then
        call('XTRIM', stream, 'MAXLEN', num(spare + length_min - #rows))
    end
    return {now, #rows, #rows > 0 and 1 or 0, floor}
end
-- Whole nodes first, a bounded number of entries a step; then exactly, inside the node that is left.
local most = math.min(spare, math.max(1, limit))
local removed = call('XTRIM', stream, 'MINID', '~', target, 'LIMIT', num(most))
if removed > 0 then
    return {now, removed, 1, floor}
end
if length_min > 0 then
    local rows = call('XRANGE', stream, '-', '(' .. target, 'COUNT', num(most + 1))
    target = rows[most + 1] and rows[most + 1][1] or target
end
return {now, call('XTRIM', stream, 'MINID', '=', target), spare > most and length_min > 0 and 1 or 0,
    floor}
