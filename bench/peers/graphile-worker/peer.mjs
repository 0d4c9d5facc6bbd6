// graphile-worker as its own page on performance sets it up: a local queue of 500, completions in batches without delay,
// 24 jobs at once. Its benchmark runs several instances, because an instance fetches only when its local queue is empty;
// two in this process were a fifth faster than one, and more made no difference on two cores.

import pg from "pg";
import { serve, version } from "./serve.mjs";

// It writes a line for every job otherwise. Read when the module is loaded.
process.env.NO_LOG_SUCCESS = "1";
const { Logger, makeWorkerUtils, runTaskList } = await import("graphile-worker");

const INSTANCES = 2;
const CONCURRENT_JOBS = 24;
const LOCAL_QUEUE = 500;

const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});
const pgPool = new pg.Pool({ connectionString: process.argv[2], max: 10 });
pgPool.on("error", (error) => console.error(error));
pgPool.on("connect", (client) => client.on("error", (error) => console.error(error)));

const options = {
  pgPool,
  noHandleSignals: true,
  preset: {
    worker: {
      concurrentJobs: CONCURRENT_JOBS,
      localQueue: { size: LOCAL_QUEUE },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      logger,
    },
  },
};
const utils = await makeWorkerUtils({ pgPool, logger });

let enqueued = 0;

async function enqueue({ batches, size, body }) {
  for (let batch = 0; batch < batches; batch++) {
    await utils.addJobs(Array.from({ length: size }, () => ({ identifier: "noop", payload: body })));
    enqueued += size;
  }
  return batches * size;
}

async function work() {
  let ran = 0;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const tasks = {
    noop() {
      if (++ran === enqueued) finish();
    },
  };
  const instances = Array.from({ length: INSTANCES }, () => runTaskList(options, tasks, pgPool));
  await finished;
  // Writes the completions that are still waiting for their batch.
  await Promise.all(instances.map((instance) => instance.gracefulShutdown()));
  enqueued = 0;
  return ran;
}

async function left() {
  const { rows } = await pgPool.query("SELECT count(*)::int AS count FROM graphile_worker._private_jobs");
  return rows[0].count;
}

await serve(
  `graphile-worker ${version("graphile-worker")}, ${INSTANCES} instances of ${CONCURRENT_JOBS} jobs at once, ` +
    `local queues of ${LOCAL_QUEUE}, batched completion`,
  { enqueue, work, left },
);
