-- Rows of the pending list, and whether their entries still exist. ARGV: 6 start, 7 end, 8 how many,
-- 9 "1" = only those of 10. KEYS: 3 the attempts.
-- Answers: now, {ID, owner, idle, deliveries, exists, deliveries before it was requeued} each.
local error = absent()
if error then
    return error
end
local rows
if ARGV[9] == '1' then
    rows = call('XPENDING', stream, group, ARGV[6], ARGV[7], ARGV[8], ARGV[10])
else
    rows = call('XPENDING', stream, group, ARGV[6], ARGV[7], ARGV[8])
end
if #rows > 2 then
    learn_bounds()
end
local carries = call('EXISTS', KEYS[3]) == 1
for _, row in ipairs(rows) do
    row[6] = carries and call('HGET', KEYS[3], row[1]) or 0
    row[5] = exists(row[1]) and 1 or 0
    row[4] = num(row[4])
end
return {now, rows}
