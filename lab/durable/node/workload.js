// The workload of `durable_peers` for a queue of Node. `src/bin/durable_peers/ours.rs` runs the same one.
//
// A system has the functions `insert(id, due)`, `insertMany(ids, due)`, `cancel(id)`, `work(handle)`, which
// calls `handle` with the due time of each delivery, and `close()`. The program reads its settings as JSON
// from its argument, and prints its figures as JSON.

const HOUR = 3_600_000 // milliseconds
const BULK = 500

export const settings = JSON.parse(process.argv[2])
export const payload = due => ({ due, text: 'x'.repeat(settings.payload) })

const sleep = millis => new Promise(resolve => setTimeout(resolve, millis))

// Calls `call` with each number below `count`, from concurrent callers. Returns the calls per second.
async function each(callers, count, call) {
  let next = 0
  const caller = async () => {
    while (next < count) await call(next++)
  }
  const begun = performance.now()
  await Promise.all(Array.from({ length: callers }, caller))
  return (count * 1000) / (performance.now() - begun)
}

// Inserts timers at a constant rate, each two seconds before it is due, and waits for their deliveries.
async function lateness(system, late, rate, seconds) {
  const count = rate * seconds
  const start = Date.now() + 2000
  const due = number => start + Math.ceil((number * 1000) / rate)
  const inserts = []
  for (let number = 0; number < count; await sleep(5)) {
    for (; number < count && due(number) < Date.now() + 2000; number++) {
      inserts.push(system.insert(`late ${rate} ${number}`, due(number)))
    }
  }
  await Promise.all(inserts)
  const deadline = Date.now() + 30_000
  while (late.length < count && Date.now() < deadline) await sleep(10)
  if (late.length !== count) throw new Error(`${late.length} of ${count} timers were delivered`)
  const sorted = late.splice(0).sort((a, b) => a - b)
  return [sorted[Math.floor(count / 2)], sorted[Math.floor((count * 99) / 100)], sorted[count - 1]]
}

export async function run(system) {
  const { callers, count, rates, seconds } = settings
  const names = prefix => Array.from({ length: count }, (_, number) => `${prefix} ${number}`)
  const [single, many, due] = [names('single'), names('many'), Date.now() + HOUR]
  const insert = await each(callers, count, number => system.insert(single[number], due))
  const groups = await each(4, count / BULK, number =>
    system.insertMany(many.slice(number * BULK, (number + 1) * BULK), due))
  const cancel = await each(callers, count, number => system.cancel(single[number]))
  const delivered = []
  await system.work(planned => delivered.push(Date.now() - planned))
  const late = []
  for (const rate of rates) late.push(await lateness(system, delivered, rate, seconds))
  await system.close()
  console.log(JSON.stringify({ insert, bulk: groups * BULK, cancel, late }))
}
