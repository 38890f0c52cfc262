// pg-boss on Postgres. Its ids are UUIDs, and it polls every half second, which is its shortest interval.
import PgBoss from 'pg-boss'
import { createHash } from 'node:crypto'
import { payload, run, settings } from './workload.js'

const boss = new PgBoss({ connectionString: settings.url, max: 16 })
await boss.start()
await boss.createQueue('timers')

const uuid = id => createHash('md5').update(id).digest('hex').replace(/(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
const options = (id, due) => ({ id: uuid(id), startAfter: new Date(due) })

await run({
  insert: (id, due) => boss.send('timers', payload(due), options(id, due)),
  insertMany: (ids, due) =>
    boss.insert(ids.map(id => ({ name: 'timers', data: payload(due), ...options(id, due) }))),
  cancel: id => boss.cancel('timers', uuid(id)),
  work: handle => {
    const polling = { batchSize: 2000, pollingIntervalSeconds: 0.5 }
    return boss.work('timers', polling, async jobs => jobs.forEach(job => handle(job.data.due)))
  },
  close: () => boss.stop(),
})
