-- RETRY and ADOPT: the caller claims from itself. ARGV: 6 and 7 the lowest and the highest ID, then
-- ID and deliveries of each. Answers: now, then for each {result, fields}.
local error = absent() or fence()
if error then
    return error
end
local ids, counts, answers = {}, {}, {}
for i = 8, #ARGV, 2 do
    ids[#ids + 1], counts[#counts + 1] = ARGV[i], tonumber(ARGV[i + 1])
end
local found, mine, mine_counts = held(ids, 6), {}, {}
for i, id in ipairs(ids) do
    if found[id] and found[id][1] == counts[i] then
        mine[#mine + 1], mine_counts[#mine_counts + 1] = id, counts[i]
        found[id].fenced = true
    end
end
local entries = take(mine, mine_counts)
for i, id in ipairs(ids) do
    if not (found[id] and found[id].fenced) then
        answers[i] = {LOST}
    elseif entries[id] then
        answers[i] = {DONE, entries[id]}
    else
        answers[i] = {TRIMMED}
    end
end
return {now, answers}
