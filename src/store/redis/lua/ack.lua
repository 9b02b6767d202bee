-- A strict ACK. ARGV: 6 and 7 the lowest and the highest ID, then ID and deliveries of each.
-- Answers: now, then a result for each.
local error = absent() or fence()
if error then
    return error
end
local ids, answers = {}, {}
for i = 8, #ARGV, 2 do
    ids[#ids + 1] = ARGV[i]
end
local found = held(ids, 6)
for i, id in ipairs(ids) do
    local row = found[id]
    answers[i] = LOST
    if row and row[1] == tonumber(ARGV[7 + 2 * i]) then
        call('XACK', stream, group, id)
        found[id], answers[i] = nil, DONE
    end
end
return {now, answers}
