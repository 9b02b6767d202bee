-- Makes a group again that was lost: from the floor that sweeps keep in its table, unless the stream is a
-- new one of the same name, which has not come so far yet. Answers: now, "1" if it was made.
local start = '0-0'
local floor, seen, added = string.match(call('HGET', tab, 'floor') or '', '^(%S+) (%S+) (%d+)$')
local reply = try('XINFO', 'STREAM', stream)
if floor and not is_error(reply) then
    local info = {}
    for i = 1, #reply, 2 do
        info[reply[i]] = reply[i + 1]
    end
    if not less(info['last-generated-id'], seen) and
        (info['entries-added'] or 0) >= tonumber(added) then
        start = floor
    end
end
reply = try('XGROUP', 'CREATE', stream, group, start, 'MKSTREAM')
if is_error(reply) and string.find(reply.err, 'BUSYGROUP', 1, true) then
    return {now, 0}
end
if is_error(reply) then
    return reply
end
return {now, 1}
