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
    local same = not less(info['last-generated-id'], seen)
    if same and info['entries-added'] then
        same = info['entries-added'] >= tonumber(added)
    elseif same then
        -- Before 7.0 nothing tells how much was added: it is the same stream if its last entry of then is there.
        -- If that was trimmed away, so was all before it, and nothing is read twice from the start.
        same = #call('XRANGE', stream, seen, seen) > 0
    end
    if same then
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
