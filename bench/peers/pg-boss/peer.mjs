// pg-boss in the fastest of its documented ways: "fetch then delete", in large batches, because it plans each of its
// statements anew. Tried in turns: work() with burstWhenBatchFull was half as fast, complete() instead of deleteJob()
// also, one fetcher instead of two two thirds as fast.

import { PgBoss } from "pg-boss";
import { serve, version } from "./serve.mjs";

const QUEUE = "noop";
const FETCHERS = 2;
const BATCH_SIZE = 2000;

// Nothing here lives long enough for maintenance or cron.
const boss = new PgBoss({ connectionString: process.argv[2], supervise: false, schedule: false });
boss.on("error", (error) => console.error(error));
await boss.start();
await boss.createQueue(QUEUE);

async function enqueue({ batches, size, body }) {
  for (let batch = 0; batch < batches; batch++) {
    await boss.insert(QUEUE, Array.from({ length: size }, () => ({ data: body })));
  }
  return batches * size;
}

async function work() {
  let ran = 0;
  async function fetcher() {
    for (;;) {
      const jobs = await boss.fetch(QUEUE, { batchSize: BATCH_SIZE });
      if (jobs.length === 0) return;
      for (const _ of jobs) ran++;
      await boss.deleteJob(QUEUE, jobs.map((job) => job.id));
    }
  }
  await Promise.all(Array.from({ length: FETCHERS }, fetcher));
  return ran;
}

async function left() {
  const { rows } = await boss.getDb().executeSql("SELECT count(*)::int AS count FROM pgboss.job");
  return rows[0].count;
}

await serve(`pg-boss ${version("pg-boss")}, fetch and deleteJob, ${FETCHERS} fetchers of ${BATCH_SIZE} jobs each`, {
  enqueue,
  work,
  left,
});
