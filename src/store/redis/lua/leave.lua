-- A worker that holds nothing takes its row away, and its consumer. Answers: now, "1" if it is gone.
local error = absent()
if error then
    return error
end
local row = row_read(call('HGET', tab, 'w:' .. me))
if row and row.token ~= token then
    return replaced()
end
if pending_of(me) > 0 then
    return {now, 0}
end
if row then
    remove_worker(me, row)
end
return {now, 1}
