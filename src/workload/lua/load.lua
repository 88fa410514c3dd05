-- Loads the tables, one in each event. It is what sysbench's own `prepare` does, as a `run`:
-- only a `run` honours --rand-seed, and every build must get the same rows.

require("oltp_common")

local loaded = 0

function prepare_statements()
end

function event()
  loaded = loaded + 1
  create_table(drv, con, loaded)
end
