-- Point queries by a list of random primary keys: SELECT c ... WHERE id IN (...).
-- sysbench ships nothing like it: its select_random_points looks for values of k.

sysbench.cmdline.options = {
  tables = {"Number of tables", 1},
  table_size = {"Rows per table", 10000},
  random_points = {"Ids in each list", 100},
}

local connection
local prepared = {}

function thread_init()
  connection = sysbench.sql.driver():connect()
  local marks = string.rep("?, ", sysbench.opt.random_points - 1) .. "?"
  for t = 1, sysbench.opt.tables do
    local statement = connection:prepare(string.format("SELECT c FROM sbtest%d WHERE id IN (%s)", t, marks))
    local ids = {}
    for i = 1, sysbench.opt.random_points do
      ids[i] = statement:bind_create(sysbench.sql.type.INT)
    end
    statement:bind_param(unpack(ids))
    prepared[t] = {statement = statement, ids = ids}
  end
end

function event()
  local one = prepared[sysbench.rand.uniform(1, sysbench.opt.tables)]
  for _, id in ipairs(one.ids) do
    id:set(sysbench.rand.default(1, sysbench.opt.table_size))
  end
  one.statement:execute()
end

function thread_done()
  for _, one in ipairs(prepared) do
    one.statement:close()
  end
  connection:disconnect()
end
