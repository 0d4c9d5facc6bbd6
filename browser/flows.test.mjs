// What can be done in the console is done, by clicking it: on things of the demo, and on some that the test has made for it.

import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { PATIENCE, act, api, close, line, open, row, shot, until, url, visit } from "./common.mjs";

// A pool whose functions no node has: what is put into it waits, until the test itself claims it.
const POOL = "clicked";
const FUNCTIONS = ["hold", "tryAgain", "lookedAt", "oftenRetried", "oftenIgnored"];

before(async () => {
  await open();
  await api("PUT", `/v1/pools/${POOL}`, { maxParallelism: 10 });
  await api("POST", `/v1/pools/${POOL}/claim`, { functions: FUNCTIONS });
});
after(close);

async function enqueue(item) {
  return (await api("POST", `/v1/pools/${POOL}/work`, { function: "hold", args: {}, ...item })).work[0].workId;
}

// An item that has failed for good, of a function of its own: its letter is in a group of its own.
async function fail(name) {
  const workId = (await api("POST", `/v1/pools/${POOL}/work`, { function: name, args: {} })).work[0].workId;
  const claimed = await until(async () => {
    const answer = await api("POST", `/v1/pools/${POOL}/claim`, { functions: [name], waitMs: 5_000 });
    return answer.items.length > 0 ? answer : null;
  });
  assert.equal(claimed.items[0].workId, workId);
  await api("POST", `/v1/work/${workId}/fail`, { lease: claimed.lease, error: `${name} never works`, class: "validationError" });
  return workId;
}

// The demo's own operator tries letters again when all is well: while the circuit is forced open, they are the test's alone.
async function alone(t) {
  await api("POST", "/admin/circuits/payments/force", { state: "open", reason: "letters are looked at" });
  t.after(() => api("POST", "/admin/circuits/payments/release", { reason: "looked at" }));
}

test("a pool is paused and goes on, by keyboard alone where that is quicker", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console`);
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await page.waitForURL("**/console/work");
  await page.locator(`a[href='/console/work/pools/${POOL}']`).first().click();
  await page.locator("h1", { hasText: "Pool" }).waitFor();
  await act(page.locator("#live"), page, "Pause", { told: "The pool rests." });
  await act(page.locator("#live"), page, "Resume", { told: "The pool goes on." });
});

test("work runs now, is cancelled, and waits in the queue of its key", async (t) => {
  const page = await visit(t);
  const later = await enqueue({ runAfterMs: 3_600_000 });
  await page.goto(`${url}/console/work/${later}`);
  await act(page.locator("#live"), page, "Run now", { told: "It is due now." });
  await line(page, "State").filter({ hasText: "ready" }).waitFor();
  await act(page.locator("#live"), page, "Cancel", { told: "It is cancelled." });
  await line(page, "State").filter({ hasText: "canceled" }).waitFor();

  const front = await enqueue({ key: "customer:7" });
  const behind = await enqueue({ key: "customer:7" });
  await page.goto(`${url}/console/work/pools/${POOL}`);
  const queue = page.locator("section", { has: page.locator("h2", { hasText: "Queues of keys" }) });
  await queue.locator("a", { hasText: "customer:7" }).click();
  await page.waitForURL("**?key=*");
  await page.locator(`a[href='/console/work/${behind}']`).waitFor();
  await act(row(page, "behind"), page, "Cancel", { told: "It is cancelled." });
  await shot(page, "queue-of-a-key");
  await page.locator(`a[href='/console/work/${front}']`).waitFor();
  await page.locator(`a[href='/console/work/${front}']`).click();
  await act(page.locator("#live"), page, "Cancel", { told: "It is cancelled." });
});

test("a question stays with what it was asked about while the list goes on", async (t) => {
  const page = await visit(t);
  const first = await enqueue({ runAfterMs: 3_600_000 });
  await page.goto(`${url}/console/work?pool=${POOL}&state=delayed`);
  const call = page.locator("details.ask[open] input[name=call]");
  const asked = page.locator("tbody tr", { has: page.locator(`a[href='/console/work/${first}']`) });
  await asked.locator("summary", { hasText: "Cancel…" }).click();
  assert.ok((await call.inputValue()).includes(first));
  const second = await enqueue({ runAfterMs: 3_600_000 });
  await page.locator(`a[href='/console/work/${second}']`).waitFor();
  assert.ok((await call.inputValue()).includes(first), "another one would be cancelled");
  await page.locator("details.ask[open] .panel button").click();
  await page.locator(".notice", { hasText: "It is cancelled." }).waitFor();
  assert.equal((await api("GET", `/admin/work/${second}`)).state, "pending");
  await api("DELETE", `/v1/work/${second}`);
});

test("work that has failed is found by its state, and tried again", async (t) => {
  const page = await visit(t);
  await alone(t);
  const workId = await fail("tryAgain");
  await page.goto(`${url}/console/work`);
  await page.selectOption("[name=state]", "failed");
  await page.fill("[name=function]", "tryAgain");
  await page.locator("form.filters button").click();
  await page.waitForURL("**state=failed**");
  await page.locator(`a[href='/console/work/${workId}']`).click();
  await page.locator(".notice.bad", { hasText: "tryAgain never works" }).waitFor();
  await act(page.locator("#live"), page, "Retry", { told: "It is tried again." });
});

test("a dead letter is left for good, and tried again after all", async (t) => {
  const page = await visit(t);
  await alone(t);
  await fail("lookedAt");
  await page.goto(`${url}/console/dead-letters?name=lookedAt`);
  await page.locator("section", { has: page.locator("h2", { hasText: "Letters" }) }).locator("tbody a").first().click();
  await page.locator("h1", { hasText: "Dead letter" }).waitFor();
  await act(page.locator("#live"), page, "Ignore", { told: "It is left for good." });
  await line(page, "Status").filter({ hasText: "ignored" }).waitFor();
  await act(page.locator("#live"), page, "Retry", { told: "It is tried again." });
});

for (const [verb, name] of [["Retry", "oftenRetried"], ["Ignore", "oftenIgnored"]]) {
  test(`${verb} of many dead letters: a preview says what it will touch, then it runs`, async (t) => {
    const page = await visit(t);
    await alone(t);
    await fail(name);
    await fail(name);
    await page.goto(`${url}/console/dead-letters?name=${name}&status=pending`);
    await shot(page, `dead-letters-${name}`);
    await page.locator("form", { has: page.locator("button", { hasText: `${verb} all…` }) }).last().locator("button").click();
    await page.locator(".notice.fair", { hasText: "2 letters will be" }).waitFor();
    await row(page, name).waitFor();
    await page.locator("button", { hasText: new RegExp(`^${verb} 2 letters$`) }).click();
    await page.locator(".notice", { hasText: "It has begun." }).waitFor();
    await line(page, "Status").locator(".badge", { hasText: "done" }).waitFor();
    assert.equal((await api("GET", `/admin/dead-letters?name=${name}&status=pending`)).letters.length, 0);
  });
}

test("an event that was put aside is tried again, and left for good", async (t) => {
  const page = await visit(t);
  const aside = () => api("GET", "/admin/poison-events?limit=50");
  const waits = async () => (await aside()).poisonEvents.find((one) => one.status === "quarantined");
  // Now and then there is one.
  const first = await until(waits);
  await page.goto(`${url}/console/projections/${first.projectionName}`);
  const put = page.locator("section", { has: page.locator("h2", { hasText: "put aside" }) });
  await act(put.locator("tr", { hasText: "quarantined" }).first(), page, "Try again", { told: "It is tried again." });
  // It cannot be taken this time either, or another one is there.
  await until(waits);
  await page.goto(`${url}/console/projections/${first.projectionName}`);
  await act(put.locator("tr", { hasText: "quarantined" }).first(), page, "Ignore", { told: "It is left for good." });
});

test("a publication that failed says why it cannot be delivered again, and is left for good", async (t) => {
  const page = await visit(t);
  await alone(t);
  // Others hear of orders, and of nothing else.
  const { eventId } = (await api("POST", "/v1/events", { events: [{ type: "Clicked", data: {} }] })).events[0];
  await api("POST", "/v1/publications", { eventId, sourceContext: "orders", targetContexts: ["inventory"] });
  await until(async () => (await api("GET", `/v1/publications/${eventId}`)).publications[0].status === "failed");
  await page.goto(`${url}/console/publications?status=failed`);
  await act(row(page, "Clicked"), page, "Retry", { told: "TRANSLATION_FAILED" });
  await page.goto(`${url}/console/publications/${eventId}`);
  await act(row(page, "Clicked"), page, "Ignore", { told: "It is left for good." });
  await row(page, "Clicked").locator(".badge", { hasText: "ignored" }).waitFor();
  await shot(page, "publication-failed");
  const { letters } = await api("GET", "/admin/dead-letters?kind=publication&status=ignored");
  assert.equal(letters.length, 1);
});

test("an intent is abandoned, with a reason", async (t) => {
  const page = await visit(t);
  const { intentKey } = await api("POST", "/v1/intents", {
    operationType: "Clicked", streamType: "Order", streamId: "clicked", boundedContext: "orders", timeoutMs: 300_000, onTimeout: "alert",
  });
  await page.goto(`${url}/console/intents?operationType=Clicked&status=pending`);
  await act(row(page, intentKey), page, "Abandon", { fill: { "set.reason": "nobody wants it" }, told: "The intent is abandoned." });
  await page.goto(`${url}/console/intents/${intentKey}`);
  await line(page, "Status").filter({ hasText: "abandoned" }).waitFor();
});

test("a limit tells what a key has left, and lets it begin anew", async (t) => {
  const page = await visit(t);
  await api("PUT", "/admin/limits/clicks", { kind: "fixed window", rate: 1000, period: "30d" });
  await api("POST", "/v1/limits/clicks/consume", { key: "clicked", cost: 500 });
  await page.goto(`${url}/console/limits`);
  await page.locator("a", { hasText: "clicks" }).click();
  await page.fill("[name=key]", "clicked");
  await page.locator("form.filters button").click();
  await page.locator("p", { hasText: "50 % used" }).waitFor();
  await act(page.locator("#live"), page, "Reset", { told: "The key begins anew." });
  await page.locator("p", { hasText: "0 % used" }).filter({ hasNotText: "50 %" }).waitFor();
});

test("a circuit is forced, with a reason, and released", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console/circuits/payments`);
  await act(page.locator("#live"), page, "Force closed", { fill: { "set.reason": "seen to by hand" }, told: "The circuit is forced." });
  await page.locator("dd", { hasText: "seen to by hand" }).waitFor();
  await act(page.locator("#live"), page, "Release", { fill: { "set.reason": "seen" }, told: "The circuit is released." });
});

test("a read model is paused and goes on", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console/projections/productCatalog`);
  await act(page.locator("#live"), page, "Pause", { told: "It rests." });
  await page.locator(".badge", { hasText: "paused" }).first().waitFor();
  await act(page.locator("#live"), page, "Resume", { told: "It goes on." });
});

test("a read model is rebuilt", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console/projections/orderSummary`);
  await act(page.locator("#live"), page, "Rebuild", { told: "The rebuild has begun." });
  await line(page, "Status").locator(".badge.good", { hasText: "active" }).waitFor();
});

test("a rebuild is seen moving, rests, goes on, and is cancelled", async (t) => {
  const page = await visit(t);
  await until(async () => (await api("GET", "/admin/replays")).replays.length === 0);
  // One event at a time, so that somebody can see it.
  await api("POST", "/admin/projections/orderSummary/replays", { chunkSize: 1, fromGlobalPosition: 0 });
  await page.goto(`${url}/console/projections/orderSummary`);
  await page.locator("section.rebuild progress").waitFor();
  const first = await page.locator("section.rebuild progress").evaluate((bar) => bar.value);
  await page.waitForFunction((first) => document.querySelector("section.rebuild progress")?.value > first, first);
  await shot(page, "rebuild");
  await act(page.locator("#live"), page, "Pause rebuild", { told: "The rebuild rests." });
  await page.locator("section.rebuild .badge", { hasText: "paused" }).waitFor();
  await act(page.locator("#live"), page, "Resume rebuild", { told: "The rebuild goes on." });
  await act(page.locator("#live"), page, "Cancel rebuild", { told: "The rebuild was cancelled." });
  await page.waitForFunction(() => !document.querySelector("section.rebuild"), undefined, { timeout: PATIENCE });
});

test("what was done is in the audit", async (t) => {
  const page = await visit(t);
  // What went well only: refusals of others would push it off the page.
  await page.goto(`${url}/console/audit?outcome=done`);
  for (const action of ["POST /admin/circuits/{name}/release", "POST /admin/replays/{replayId}/cancel", "POST /admin/work/{id}/retry"]) {
    await page.locator("td code", { hasText: action }).first().waitFor();
  }
});
