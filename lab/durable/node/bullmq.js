// BullMQ on Redis. Its job ids may not contain some characters, so spaces are replaced.
import { Queue, Worker } from 'bullmq'
import { payload, run, settings } from './workload.js'

const { hostname, port } = new URL(settings.url)
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null }
const queue = new Queue('timers', { connection })
const options = (id, due) => ({ jobId: id.replaceAll(' ', '-'), delay: due - Date.now(), removeOnComplete: true })
let worker

await run({
  insert: (id, due) => queue.add('timer', payload(due), options(id, due)),
  insertMany: (ids, due) =>
    queue.addBulk(ids.map(id => ({ name: 'timer', data: payload(due), opts: options(id, due) }))),
  cancel: id => queue.remove(id.replaceAll(' ', '-')),
  work: async handle => {
    worker = new Worker('timers', async job => handle(job.data.due), { connection, concurrency: 256 })
    await worker.waitUntilReady()
  },
  close: async () => {
    await worker.close()
    await queue.close()
  },
})
