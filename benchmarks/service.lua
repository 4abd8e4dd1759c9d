-- Uploads for wrk: ARGUMENTS are a file of bodies, the bytes of each, the headers as NAME=VALUE.
-- Every request has a random Idempotency-Key and one of the bodies.
local bodies, headers = {}, {}
local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  local size = tonumber(arguments[2])
  while true do
    local body = file:read(size)
    if not body then break end
    bodies[#bodies + 1] = body
  end
  file:close()
  for place = 3, #arguments do
    local name, value = arguments[place]:match("([^=]+)=(.*)")
    headers[name] = value
  end
  local random = assert(io.open("/dev/urandom", "rb"))
  local a, b, c = random:read(3):byte(1, 3)
  random:close()
  math.randomseed(a * 65536 + b * 256 + c + number)
end

local function digits()
  return string.format("%08x", math.floor(math.random() * 4294967296))
end

function request()
  headers["Idempotency-Key"] = digits() .. digits() .. digits() .. digits()
  return wrk.format("POST", nil, headers, bodies[math.random(#bodies)])
end

function done(summary, latency)
  local errors = summary.errors
  local lost = errors.connect + errors.read + errors.write + errors.timeout
  print(string.format("measured %d %d %d %d %d %d", summary.requests, summary.duration, errors.status, lost,
    latency:percentile(50), latency:percentile(99)))
end
