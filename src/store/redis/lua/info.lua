-- A stream and its groups, seen in one step. Answers: now, exists, then length, last ID, first ID,
-- entries added, {name, last delivered, pending, consumers, lag, first pending, its idle time, entries
-- read} each.
local reply = try('XINFO', 'STREAM', stream)
if is_error(reply) then
    return string.find(reply.err, 'no such key', 1, true) and {now, 0} or reply
end
local info, groups = named(reply), {}
for _, each in ipairs(call('XINFO', 'GROUPS', stream)) do
    local one = named(each)
    local first = call('XPENDING', stream, one['name'], '-', '+', 1)[1]
    groups[#groups + 1] = {one['name'], one['last-delivered-id'], one['pending'], one['consumers'],
        one['lag'] or -1, first and first[1] or '0-0', first and first[3] or -1,
        one['entries-read'] or -1}
end
local entry = info['first-entry']
return {now, 1, info['length'], info['last-generated-id'], entry and entry[1] or '0-0',
    info['entries-added'] or info['length'], groups}
