// Answers each JSON line on standard input with one on standard output; bench/src/work/peers says which there are.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

/** The installed version of a package. */
export function version(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
}

/** Says who is here, then calls the verb of each line and answers with the count that it resolves to. */
export async function serve(about, verbs) {
  const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
  say({ about: `${about} (Node ${process.versions.node})` });
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    const began = performance.now();
    try {
      const count = await verbs[request.verb](request);
      say({ count, ms: performance.now() - began });
    } catch (error) {
      say({ error: error.stack });
    }
  }
  process.exit(0);
}
