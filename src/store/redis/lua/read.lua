-- New entries of several streams, or up to a size, without blocking. KEYS: the streams, in the order of
-- asking. ARGV: 6 how many in all, 7 up to which size (0 = any).
-- Answers: now, then {index, ID, fields} each; or now, index, error where one is missing.
local count, size_max = tonumber(ARGV[6]), tonumber(ARGV[7])
for i, key in ipairs(KEYS) do
    local reply = try('XPENDING', key, group, '0-0', '0-0', 1)
    if is_error(reply) then
        return {now, i - 1, reply.err}
    end
end
local entries, size = {}, 0
for i, key in ipairs(KEYS) do
    local more = true
    while more and #entries < count and (size_max == 0 or size < size_max) do
        local wanted = size_max > 0 and 1 or count - #entries
        local reply = call('XREADGROUP', 'GROUP', group, me, 'COUNT', wanted, 'STREAMS', key, '>')
        for _, entry in ipairs(reply and reply[1] and reply[1][2] or {}) do
            entries[#entries + 1] = {i - 1, entry[1], entry[2]}
            for _, field in ipairs(entry[2]) do
                size = size + #field
            end
        end
        more = size_max > 0 and reply and #reply > 0
    end
end
return {now, entries}
