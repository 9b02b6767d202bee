-- The second half of parking what is too large for a script, behind its XADD in one MULTI/EXEC: the
-- ack, if the fence holds and the copy is there; else the copy is taken back. KEYS: 3 the stream that the
-- copy went to, 4 the attempts. ARGV: 6 owner, 7 ID, 8 deliveries, 9 last active, 10 "1" if the owner is the caller (then its
-- token is the fence, else its row or the lack of one: 11, and that it did not renew), 12 parked at,
-- 13 "" for a park, or "requeue"; or "before" in front of the XADD: that notes the stream's end, by which
-- the copy of a requeue is known; 14 what the copy carries.
-- Answers: now, result, and the copy's ID.
local owner, id, mode = ARGV[6], ARGV[7], ARGV[13]
local copy = try('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)
local fields = not is_error(copy) and copy[1] and copy[1][2] or {}
local n = #fields
if mode == 'before' then
    call('HSET', tab, 'end', copy[1] and copy[1][1] or '')
    return {now, DONE}
end
local before = call('HGET', tab, 'end')
call('HDEL', tab, 'end')
if mode == 'requeue' then
    if not before or not copy[1] or copy[1][1] == before then
        return {now, FAILED}
    end
elseif fields[n] ~= '10' or fields[n - 18] ~= id or fields[n - 14] ~= group or
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
try('HDEL', KEYS[4], id)
if mode == 'requeue' then
    try('HSET', KEYS[4], copy[1][1], ARGV[14])
end
return {now, DONE, copy[1][1]}
