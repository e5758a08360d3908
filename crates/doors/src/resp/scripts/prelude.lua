-- The sandbox of scripts. It is executed once, when the interpreter is made. Its argument has the
-- functions of the host. It returns the environment of scripts, the table behind it, a function
-- that removes from read-only tables all that a script put into them, a function that chooses the
-- environment of libraries that are loaded, and a function that gives arguments to another one.
--
-- A read-only table is an empty table whose metatable looks up another one, so each assignment to it
-- calls `__newindex`. `hidden` has the tables behind.

local host = ...
local error, getmetatable, setmetatable, next, pairs, type = error, getmetatable, setmetatable, next, pairs, type
local pcall, rawset, rawget, rawequal, select = pcall, rawset, rawget, rawequal, select
local tonumber, unpack, insert = tonumber, unpack, table.insert
local loadstring, convert, concat, resume = host.loadstring, host.convert, table.concat, coroutine.resume
local count = collectgarbage

local hidden = {}
local READONLY = 'Attempt to modify a readonly table'

local function refuse()
  error(READONLY, 2)
end

local function readonly(own)
  local front = setmetatable({}, { __index = own, __newindex = refuse })
  hidden[front] = own
  return front
end

local function check_table(value, name)
  if type(value) ~= 'table' then
    local kind = value == nil and 'nil' or type(value)
    error("bad argument #1 to '" .. name .. "' (table expected, got " .. kind .. ')', 3)
  end
end

-- Errors of the host arrive as userdata. Scripts see strings, and tables with a field `err`.
local function outcome(is_done, ...)
  if is_done then
    return true, ...
  end
  local err = convert((...))
  if type(err) == 'table' then
    local text = rawget(err, 'err')
    if type(text) == 'string' or type(text) == 'number' then
      return false, text
    end
  end
  return false, err
end

local function handled(handler, is_done, ...)
  if is_done then
    return true, ...
  end
  local is_handled, result = pcall(handler, convert((...)))
  if is_handled then
    return false, result
  end
  return false, 'error in error handling'
end

local function resumed(is_done, ...)
  if is_done then
    return true, ...
  end
  return false, convert((...))
end

-- Returns an argument that must be a number.
local function number_of(value, index, name)
  local number = (type(value) == 'number' or type(value) == 'string') and tonumber(value)
  if not number then
    local text = "bad argument #%d to '%s' (number expected, got %s)"
    error(text:format(index, name, type(value)), 3)
  end
  return number
end

-- Lua's own `unpack` counts the results in 32 bits. If the count does not fit, it writes beyond its
-- stack. Its stack has space for 8000 values, with the arguments.
local VALUES_MAX = 8000

local function own_unpack(t, ...)
  check_table(t, 'unpack')
  local first, last = ...
  first = first == nil and 1 or number_of(first, 2, 'unpack')
  last = last == nil and #t or number_of(last, 3, 'unpack')
  if first > last then
    return
  end
  -- A number that is not a number is not less, so it is refused too.
  if not (last - first < VALUES_MAX - 1 - select('#', ...)) then
    error('too many results to unpack', 2)
  end
  return unpack(t, ...)
end

-- Lua's own `table.insert` moves all elements from the position on, without a limit of its time, and
-- it takes negative positions, too.
local POSITION_MIN, POSITION_MAX = -1e6, 2 ^ 31 - 1

local function own_insert(t, ...)
  check_table(t, 'insert')
  local count = select('#', ...)
  if count ~= 1 and count ~= 2 then
    error("wrong number of arguments to 'insert'", 2)
  end
  if count == 2 then
    local position = number_of((...), 2, 'insert')
    if not (position >= POSITION_MIN and position <= POSITION_MAX) then
      error("bad argument #2 to 'insert' (position out of bounds)", 2)
    end
  end
  return insert(t, ...)
end

local strings_front, globals_front
local globals = {}
local environment = readonly(globals)

local function own_next(t, key)
  check_table(t, 'next')
  return next(hidden[t] or t, key)
end

local functions = {
  assert = assert,
  error = error,
  ipairs = ipairs,
  rawequal = rawequal,
  select = select,
  tonumber = tonumber,
  tostring = tostring,
  type = type,
  unpack = own_unpack,
  gcinfo = gcinfo,
  next = own_next,
  pairs = function(t)
    check_table(t, 'pairs')
    if hidden[t] then
      return own_next, t, nil
    end
    return next, t, nil
  end,
  pcall = function(...)
    if select('#', ...) == 0 then
      return false
    end
    return outcome(pcall(...))
  end,
  -- Lua's own `xpcall` calls the handler before the error has left the function. If the error is
  -- that of the hook, the hook would not be called in the handler, which might never end.
  xpcall = function(f, handler)
    return handled(handler, pcall(f))
  end,
  rawget = function(t, key)
    check_table(t, 'rawget')
    return rawget(hidden[t] or t, key)
  end,
  rawset = function(t, key, value)
    check_table(t, 'rawset')
    if hidden[t] then
      error(READONLY, 0)
    end
    return rawset(t, key, value)
  end,
  getmetatable = function(value)
    if type(value) == 'string' then
      return strings_front
    end
    if value == environment then
      return globals_front
    end
    if hidden[value] then
      return nil
    end
    return getmetatable(value)
  end,
  setmetatable = function(t, metatable)
    check_table(t, 'setmetatable')
    if hidden[t] then
      error(READONLY, 0)
    end
    if metatable ~= nil and type(metatable) ~= 'table' then
      error("bad argument #2 to 'setmetatable' (nil or table expected)", 2)
    end
    return setmetatable(t, metatable)
  end,
  -- The pace of the collector is not a script's business: it would outlive the script.
  collectgarbage = function(option)
    if option == 'count' then
      return count('count')
    end
    return 0
  end,
  loadstring = loadstring,
  load = function(reader, name)
    local pieces = {}
    while true do
      local is_done, piece = pcall(reader)
      if not is_done then
        return nil, convert(piece)
      end
      if piece == nil or piece == '' then
        break
      end
      if type(piece) ~= 'string' then
        return nil, 'reader function must return a string'
      end
      pieces[#pieces + 1] = piece
    end
    return loadstring(concat(pieces), name or '=(load)')
  end,
}
for name, value in pairs(functions) do
  globals[name] = value
end
globals._G = environment
globals._VERSION = _VERSION
globals.__redis__err__handler = host.handler

local texts = {}
for name, value in pairs(string) do
  texts[name] = value
end
for name, value in pairs(host.string) do
  texts[name] = value
end
globals.string = readonly(texts)
local of_strings = getmetatable('')
of_strings.__index = globals.string
strings_front = readonly(of_strings)

local numbers = {}
for name, value in pairs(math) do
  numbers[name] = value
end
for name, value in pairs(host.math) do
  numbers[name] = value
end
globals.math = readonly(numbers)

local coroutines = {}
for name, value in pairs(coroutine) do
  coroutines[name] = value
end
coroutines.resume = function(...)
  return resumed(resume(...))
end
globals.coroutine = readonly(coroutines)

local lists = {}
for name, value in pairs(table) do
  lists[name] = value
end
lists.insert = own_insert
globals.table = readonly(lists)

for name, library in pairs(host.libraries) do
  globals[name] = readonly(library)
end

local of_globals = {
  __index = function(_, name)
    if type(name) ~= 'string' and type(name) ~= 'number' then
      return nil
    end
    error("Script attempted to access nonexistent global variable '" .. name .. "'", 2)
  end,
}
setmetatable(globals, of_globals)
globals_front = readonly(of_globals)

local function tidy()
  for front in pairs(hidden) do
    while true do
      local key = next(front)
      if key == nil then
        break
      end
      rawset(front, key, nil)
    end
  end
end

-- While a library is loaded, its environment has only the table `redis`, with few functions.
local loading
if host.loading then
  globals.__redis__err__handler = nil
  loading = setmetatable({ redis = readonly(setmetatable(host.loading, of_globals)) }, of_globals)
end

local function switch(is_loading)
  local own = is_loading and loading or globals
  getmetatable(environment).__index = own
  hidden[environment] = own
end

local function bind(f, one, other)
  return function()
    return f(one, other)
  end
end

return environment, globals, tidy, switch, bind
