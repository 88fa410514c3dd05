-- Plain range scans by primary key that need columns outside the index:
-- SELECT id, c ... WHERE id BETWEEN x AND x + range_size.

sysbench.cmdline.options = {
  tables = {"Number of tables", 1},
  table_size = {"Rows per table", 10000},
  range_size = {"Distance of the range's ends", 100},
}

local connection
local prepared = {}

function thread_init()
  connection = sysbench.sql.driver():connect()
  for t = 1, sysbench.opt.tables do
    local statement = connection:prepare(string.format("SELECT id, c FROM sbtest%d WHERE id BETWEEN ? AND ?", t))
    local first = statement:bind_create(sysbench.sql.type.INT)
    local last = statement:bind_create(sysbench.sql.type.INT)
    statement:bind_param(first, last)
    prepared[t] = {statement = statement, first = first, last = last}
  end
end

function event()
  local one = prepared[sysbench.rand.uniform(1, sysbench.opt.tables)]
  local start = sysbench.rand.default(1, sysbench.opt.table_size)
  one.first:set(start)
  one.last:set(start + sysbench.opt.range_size)
  one.statement:execute()
end

function thread_done()
  for _, one in ipairs(prepared) do
    one.statement:close()
  end
  connection:disconnect()
end
