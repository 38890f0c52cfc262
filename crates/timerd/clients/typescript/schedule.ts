// Schedules a webhook: node dist/schedule.js ID URL
//
// Its client has the types in timerd.d.ts, which `npm run build` generates from the OpenAPI document.

import createClient from "openapi-fetch";
import type { paths } from "./timerd.js";

const [id, url] = process.argv.slice(2);
const { TIMERD_URL, TIMERD_TOKEN } = process.env;
if (!id || !url || !TIMERD_URL || !TIMERD_TOKEN) throw new Error("an argument or a variable is missing");

const client = createClient<paths>({
  baseUrl: TIMERD_URL,
  headers: { Authorization: `Bearer ${TIMERD_TOKEN}` },
});
const params = { path: { id } };
const webhook = { url, body: JSON.stringify({ order: 7 }) };
const { data, error } = await client.PUT("/v1/timers/{id}", {
  params,
  body: { webhook, schedule: { after: "1s" } },
});
if (error) throw new Error(error.detail);
const timer = await client.GET("/v1/timers/{id}", { params });
if (timer.error) throw new Error(timer.error.detail);
console.log(data.result, timer.data.webhook?.url, timer.data.due);
