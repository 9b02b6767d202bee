-- The second half of parking what is too large for a script, behind its XADD in one MULTI/EXEC: the
-- ack, if the fence holds and the copy is there; else the copy is taken back. KEYS: 3 the dead-letter
-- stream. ARGV: 6 owner, 7 ID, 8 deliveries, 9 last active, 10 "1" if the owner is the caller (then its
-- token is the fence, else its row or the lack of one: 11, and that it did not renew).
-- Answers: now, result.
local owner, id = ARGV[6], ARGV[7]
local copy = try('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)
local fields = not is_error(copy) and copy[1] and copy[1][2] or {}
local n = #fields
if fields[n] ~= '10' or fields[n - 18] ~= id or fields[n - 14] ~= group or
    fields[n - 2] ~= ARGV[12] then
    return {now, FAILED}
end
local function holds()
    if absent() then
        return false
    end
    local row = call('HGET', tab, 'w:' .. owner) or ''
    if ARGV[10] == '1' then
        if fence() then
            return false
        end
    elseif row ~= ARGV[11] then
        return false
    end
    local pending = call('XPENDING', stream, group, id, id, 1)[1]
    return pending and pending[2] == owner and pending[4] == tonumber(ARGV[8]) and
        (ARGV[10] == '1' or now - pending[3] <= tonumber(ARGV[9]) + 50)
end
if not holds() then
    call('XDEL', KEYS[3], copy[1][1])
    return {now, LOST}
end
call('XACK', stream, group, id)
return {now, DONE}
