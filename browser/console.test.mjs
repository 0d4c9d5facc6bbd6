// The console in a real Chromium, on the demo: each page loads without a word on the browser's console, passes axe, and its main
// flow is clicked through. Screenshots are kept in the folder SHOTS.
//
// Started by ../test browser, which says where the demo is: MAINSTAY_URL, MAINSTAY_LINK (once), MAINSTAY_READER (a token).

import { chromium } from "playwright-core";
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { MAINSTAY_URL: url, MAINSTAY_LINK: link, MAINSTAY_READER: readerToken, CHROMIUM, SHOTS } = process.env;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
mkdirSync(SHOTS, { recursive: true });

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const PATIENCE = 60_000;

let browser, session;

before(async () => {
  browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(link);
  assert.equal(page.url(), `${url}/console`);
  session = await context.storageState();
  await context.close();
});

after(async () => { await browser?.close(); });

// A page of somebody who is logged in. Whatever the browser complains about, and whatever is asked of others, fails the test.
async function visit(t, options = {}) {
  const context = await browser.newContext({ storageState: session, viewport: { width: 1400, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const complaints = [];
  page.on("console", (message) => complaints.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => { if (!request.url().startsWith(url)) complaints.push(`asks ${request.url()}`); });
  t.after(async () => {
    await context.close();
    assert.deepEqual(complaints, []);
  });
  return page;
}

// An action asks first; then it is done, and the page says so.
async function act(scope, page, verb, { fill = {}, told }) {
  const ask = scope.locator("details.ask", { has: page.locator("summary", { hasText: `${verb}…` }) }).first();
  await ask.locator("summary").click();
  assert.ok((await ask.locator(".panel p").innerText()).length > 10, "it says what it will do");
  for (const [name, value] of Object.entries(fill)) await ask.locator(`[name="${name}"]`).fill(value);
  await ask.locator(".panel button").click();
  await page.locator(".notice", { hasText: told }).waitFor();
}

const VIEWS = [
  "", "/events", "/work", "/projections", "/projections/orderSummary", "/dead-letters", "/dead-letters/operations", "/publications",
  "/intents", "/circuits", "/circuits/payments", "/limits", "/audit", "/configuration",
];

for (const view of VIEWS) {
  test(`${view || "/"} loads, is accessible, and looks right in light and dark, wide and narrow`, async (t) => {
    for (const [colorScheme, width] of [["light", 1400], ["dark", 1400], ["light", 420], ["dark", 420]]) {
      const page = await visit(t, { colorScheme, viewport: { width, height: 900 } });
      const answer = await page.goto(`${url}/console${view}`);
      assert.equal(answer.status(), 200);
      await page.locator("h1").waitFor();
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${overflow} pixels too wide`);
      await page.screenshot({ path: `${SHOTS}/${view.replaceAll("/", "-").slice(1) || "overview"}-${colorScheme}-${width}.png` });
      if (width === 1400) {
        // The policy of the page lets no script in; this one comes from the browser itself.
        await page.evaluate(`(() => { ${axe}; window.axe = axe; })()`);
        const found = await page.evaluate(() => window.axe.run({ runOnly: ["wcag2a", "wcag2aa"] }));
        assert.deepEqual(found.violations.map((one) => [one.id, one.nodes.map((node) => node.html).slice(0, 3)]), []);
      }
    }
  });
}

test("the whole console is less than 200 KB", async (t) => {
  const page = await visit(t);
  const bodies = [];
  page.on("response", (response) => { if (!response.url().includes("/live")) bodies.push(response.body()); });
  await page.goto(`${url}/console`, { waitUntil: "load" });
  const bytes = (await Promise.all(bodies)).reduce((sum, body) => sum + body.length, 0);
  assert.ok(bytes > 10_000 && bytes < 200_000, `${bytes} bytes`);
});

test("the overview follows what happens without being loaded again", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console/events`);
  await page.evaluate(() => { window.isSame = true; });
  const first = page.locator("tbody tr td").first();
  const before = await first.innerText();
  await page.waitForFunction((before) => document.querySelector("tbody tr td").innerText !== before, before);
  assert.ok(await page.evaluate(() => window.isSame));
});

test("an order can be followed from its event through its trace", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console/events?type=OrderSubmitted`);
  await page.locator("tbody tr a", { hasText: "OrderSubmitted" }).first().click();
  await page.locator("h1", { hasText: "OrderSubmitted" }).waitFor();
  await page.locator("dl.rows a[href*='/traces/']").click();
  await page.locator("ol.timeline .kind", { hasText: "command" }).first().waitFor();
  await page.locator("ol.timeline .kind", { hasText: "event" }).first().waitFor();
  await page.screenshot({ path: `${SHOTS}/trace.png` });
  const id = decodeURIComponent(page.url().split("/").pop());
  await page.keyboard.press("/");
  await page.keyboard.type(id);
  await page.keyboard.press("Enter");
  await page.waitForURL(`**/console/traces/${id}`);
});

test("a pool is paused and goes on, by keyboard alone where that is quicker", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console`);
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await page.waitForURL("**/console/work");
  await page.locator("a[href='/console/work/pools/projectionPool'], a[href*='/console/work/pools/']").first().click();
  await page.locator("h1", { hasText: "Pool" }).waitFor();
  await act(page.locator("#live"), page, "Pause", { told: "The pool rests." });
  await act(page.locator("#live"), page, "Resume", { told: "The pool goes on." });
});

test("a read model is rebuilt, and its progress moves or is over", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console/projections/orderSummary`);
  await act(page.locator("#live"), page, "Rebuild", { told: "The rebuild has begun." });
  await page.locator("dt", { hasText: "Status" }).locator("xpath=..").locator(".badge.good", { hasText: "active" }).waitFor();
});

test("a read model is paused and goes on", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console/projections/productCatalog`);
  await act(page.locator("#live"), page, "Pause", { told: "It rests." });
  await page.locator(".badge", { hasText: "paused" }).first().waitFor();
  await act(page.locator("#live"), page, "Resume", { told: "It goes on." });
});

test("dead letters are tried again: a preview says what it will touch, then it runs", async (t) => {
  const page = await visit(t);
  // They come and go with the provider.
  const letter = page.locator("tbody tr a[href^='/console/dead-letters/']").first();
  const deadline = Date.now() + PATIENCE;
  do {
    await page.goto(`${url}/console/dead-letters?status=pending`);
  } while (!(await letter.isVisible()) && Date.now() < deadline);
  await page.screenshot({ path: `${SHOTS}/dead-letters-pending.png` });
  await page.locator("form", { has: page.locator("button", { hasText: "Retry all…" }) }).last().locator("button").click();
  await page.locator(".notice.fair", { hasText: "Nothing has been done yet" }).waitFor();
  await page.locator("button", { hasText: /^Retry .* letters$/ }).click();
  await page.locator(".notice", { hasText: "It has begun." }).waitFor();
  await page.locator("dt", { hasText: "Status" }).locator("xpath=..").locator(".badge", { hasText: "done" }).waitFor();
});

test("a circuit is forced, with a reason, and released", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console/circuits/payments`);
  await act(page.locator("#live"), page, "Force closed", { fill: { "set.reason": "seen to by hand" }, told: "The circuit is forced." });
  await page.locator("dd", { hasText: "seen to by hand" }).waitFor();
  await act(page.locator("#live"), page, "Release", { fill: { "set.reason": "seen" }, told: "The circuit is released." });
});

test("what was done is in the audit", async (t) => {
  const page = await visit(t);
  await page.goto(`${url}/console/audit`);
  await page.locator("td code", { hasText: "POST /admin/circuits/{name}/release" }).first().waitFor();
});

test("a reader logs in with a token, sees everything, and is offered nothing to change", async (t) => {
  const page = await visit(t, { storageState: undefined });
  await page.goto(`${url}/console/work`);
  await page.waitForURL("**/console/login?to=*");
  await page.screenshot({ path: `${SHOTS}/login.png` });
  await page.fill("#token", readerToken);
  await page.keyboard.press("Enter");
  await page.waitForURL("**/console/work");
  for (const view of ["/work", "/projections", "/dead-letters", "/circuits/payments"]) {
    await page.goto(`${url}/console${view}`);
    assert.equal(await page.locator("details.ask, form[action='/console/act']").count(), 0, view);
  }
  await page.locator("button", { hasText: "Log out" }).click();
  await page.waitForURL("**/console/login");
});
