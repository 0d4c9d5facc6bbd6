// The console in a real Chromium, on the demo: each view and each page of one thing loads without a word on the browser's
// console, passes axe, and looks right; and one comes in, follows, and finds.

import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { api, close, line, link, look, open, readerToken, row, shot, until, url, visit } from "./common.mjs";

before(open);
after(close);

const VIEWS = [
  "", "/events", "/work", "/projections", "/projections/orderSummary", "/dead-letters", "/dead-letters/operations", "/publications",
  "/intents", "/circuits", "/circuits/payments", "/limits", "/audit", "/configuration",
];

for (const view of VIEWS) {
  test(`${view || "/"} loads, is accessible, and looks right in light and dark, wide and narrow`, async (t) => {
    await look(await visit(t), view, view.replaceAll("/", "-").slice(1) || "overview");
  });
}

const newest = async (type) => (await api("GET", `/v1/events?type=${type}&order=backward&limit=1`)).events[0];
const confirmed = () => until(() => newest("OrderConfirmed"));
const letter = () => until(async () => (await api("GET", "/admin/dead-letters?limit=1")).letters[0]);

// Where there is one of each thing.
const DETAILS = {
  event: async () => `/events/${(await confirmed()).eventId}`,
  stream: async () => { const { stream } = await confirmed(); return `/streams/${stream.type}/${stream.id}`; },
  trace: async () => `/traces/${(await confirmed()).correlationId}`,
  "poison-event-of-a-trace": async () => {
    const aside = await until(async () => (await api("GET", "/admin/poison-events?limit=1")).poisonEvents[0]);
    return `/traces/${(await api("GET", `/v1/events/${aside.eventId}`)).correlationId}`;
  },
  "stream-that-is-none": async () => "/events?stream=nothing&type=OrderConfirmed",
  pool: async () => `/work/pools/${(await api("GET", "/admin/pools")).pools[0].name}`,
  item: async () => `/work/${(await until(async () => (await api("GET", "/admin/work?limit=1")).work[0])).workId}`,
  letter: async () => `/dead-letters/${(await letter()).letterId}`,
  operation: async () => {
    await letter();
    const operation = await api("POST", "/admin/dead-letter-operations", { action: "retry", filter: { kind: "work" } });
    return `/dead-letters/operations/${operation.operationId}`;
  },
  intent: async () => {
    const intent = await api("POST", "/v1/intents", {
      operationType: "Submission", streamType: "Order", streamId: "looked-at", boundedContext: "orders", timeoutMs: 300_000,
      onTimeout: "alert",
    });
    return `/intents/${intent.intentKey}`;
  },
  limit: async () => "/limits/adminOperations?key=somebody",
  "publications-of-event": async () => {
    const page = await until(async () => (await api("GET", "/admin/publications?limit=1")).publications[0]);
    return `/publications/${page.eventId}`;
  },
};

for (const [thing, find] of Object.entries(DETAILS)) {
  test(`the page of one ${thing} loads, is accessible, and looks right`, async (t) => {
    await look(await visit(t), await find(), `one-${thing}`);
  });
}

test("the whole console is less than 200 KB", async (t) => {
  const page = await visit(t);
  const bodies = [];
  page.on("response", (response) => { if (!response.url().includes("/live")) bodies.push(response.body()); });
  await page.goto(`${url}/console`, { waitUntil: "load" });
  // What comes from now on is what the page follows, and nobody would wait for it.
  page.removeAllListeners("response");
  const bytes = (await Promise.all(bodies)).reduce((sum, body) => sum + body.length, 0);
  assert.ok(bytes > 10_000 && bytes < 200_000, `${bytes} bytes`);
});

test("a link lets somebody in, once", async (t) => {
  const page = await visit(t, { storageState: undefined });
  await page.goto(link);
  assert.equal(page.url(), `${url}/console`);
  await page.locator("h1", { hasText: "Overview" }).waitFor();
});

for (const [name, path, what] of [["the overview", "", ".tile strong"], ["a list", "/events", "tbody tr td"]]) {
  test(`${name} follows what happens without being loaded again`, async (t) => {
    const page = await visit(t);
    await page.goto(`${url}/console${path}`);
    await page.evaluate(() => { window.isSame = true; });
    const told = await page.locator(what).first().innerText();
    await page.waitForFunction(([what, told]) => document.querySelector(what).innerText !== told, [what, told]);
    assert.ok(await page.evaluate(() => window.isSame));
  });
}

test("the overview draws how things were in the last minutes", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console`);
  await page.waitForFunction(() => document.querySelectorAll(".tile svg polyline").length >= 4);
});

test("an order can be followed from its event through its trace", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console/events?type=OrderSubmitted`);
  await page.locator("tbody tr a", { hasText: "OrderSubmitted" }).first().click();
  await page.locator("h1", { hasText: "OrderSubmitted" }).waitFor();
  await page.locator("dl.rows a[href*='/traces/']").click();
  for (const kind of ["command", "event", "projection", "work"]) {
    await page.locator("ol.timeline .kind", { hasText: kind }).first().waitFor();
  }
  await shot(page, "trace");
  const id = decodeURIComponent(page.url().split("/").pop());
  await page.keyboard.press("/");
  await page.keyboard.type(id);
  await page.keyboard.press("Enter");
  await page.waitForURL(`**/console/traces/${id}`);
});

test("a publication is found by what came of it, and leads to its event", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console/publications`);
  await page.selectOption("[name=status]", "delivered");
  await page.locator("form.filters button").click();
  await page.waitForURL("**/console/publications?*status=delivered*");
  await row(page, "delivered").locator("a[href^='/console/events/']").first().click();
  await page.locator("h2", { hasText: "Publications" }).waitFor();
  await line(page, "Correlation").locator("a").waitFor();
});

test("a reader logs in with a token, sees everything, and is offered nothing to change", async (t) => {
  const page = await visit(t, { storageState: undefined });
  await page.goto(`${url}/console/work`);
  await page.waitForURL("**/console/login?to=*");
  await shot(page, "login");
  await page.fill("#token", readerToken);
  await page.keyboard.press("Enter");
  await page.waitForURL("**/console/work");
  for (const view of ["/work", "/projections", "/dead-letters", "/intents", "/limits/adminOperations?key=a", "/circuits/payments"]) {
    await page.goto(`${url}/console${view}`);
    assert.equal(await page.locator("details.ask, form[action='/console/act']").count(), 0, view);
  }
  await page.locator("button", { hasText: "Log out" }).click();
  await page.waitForURL("**/console/login");
});
