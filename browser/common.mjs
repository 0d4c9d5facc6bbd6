// What the tests of the console share: somebody who is logged in, what is looked at on every page, and the API for what a test
// needs to find. The environment comes from ../test browser: MAINSTAY_URL, MAINSTAY_LINK (once), MAINSTAY_ADMIN and
// MAINSTAY_READER (tokens), CHROMIUM, and SHOTS, the folder for screenshots.

import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

export const { MAINSTAY_URL: url, MAINSTAY_LINK: link, MAINSTAY_ADMIN: adminToken, MAINSTAY_READER: readerToken } = process.env;
const { CHROMIUM, SHOTS } = process.env;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
mkdirSync(SHOTS, { recursive: true });

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
export const PATIENCE = 60_000;

let browser, session;

export async function open() {
  browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${url}/console/login`);
  await page.fill("#token", adminToken);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${url}/console`);
  session = await context.storageState();
  await context.close();
}

export async function close() { await browser?.close(); }

// A page of somebody who is logged in. Whatever the browser complains about, and whatever is asked of others, fails the test.
export async function visit(t, options = {}) {
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

export const shot = (page, name) => page.screenshot({ path: `${SHOTS}/${name}.png` });

// Loads a view, and looks at it in light and dark, wide and narrow: nothing sticks out, and axe has nothing to say.
export async function look(page, path, name) {
  const answer = await page.goto(`${url}/console${path}`);
  assert.equal(answer.status(), 200);
  await page.locator("h1").waitFor();
  // The policy of the page lets no script in; this one comes from the browser itself.
  await page.evaluate(`(() => { ${axe}; window.axe = axe; })()`);
  for (const [colorScheme, width] of [["light", 1400], ["dark", 1400], ["light", 420], ["dark", 420]]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 900 });
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${overflow} pixels too wide`);
    await shot(page, `${name}-${colorScheme}-${width}`);
    // Colours are the same wherever there is less room.
    if (width < 1400 && colorScheme === "dark") continue;
    const found = await page.evaluate(() => window.axe.run({ runOnly: ["wcag2a", "wcag2aa"] }));
    assert.deepEqual(found.violations.map((one) => [one.id, one.nodes.map((node) => node.html).slice(0, 3)]), []);
  }
}

// An action asks first; then it is done, and the page says so.
export async function act(scope, page, verb, { fill = {}, told }) {
  const ask = scope.locator("details.ask", { has: page.locator("summary", { hasText: `${verb}…` }) }).first();
  await ask.locator("summary").click();
  assert.ok((await ask.locator(".panel p").innerText()).length > 10, "it says what it will do");
  for (const [name, value] of Object.entries(fill)) await ask.locator(`[name="${name}"]`).fill(value);
  await ask.locator(".panel button").click();
  await page.locator(".notice", { hasText: told }).waitFor();
}

// The row of a list in which something is written.
export const row = (page, text) => page.locator("tbody tr", { hasText: text }).first();

// What the line of a detail page says, such as its Status.
export const line = (page, title) => page.locator("dl.rows div", { has: page.locator("dt", { hasText: title }) }).locator("dd");

export async function api(method, path, body) {
  const headers = { authorization: `Bearer ${adminToken}`, "content-type": "application/json" };
  const answer = await fetch(`${url}${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const told = await answer.json();
  assert.ok(answer.ok, `${method} ${path}: ${JSON.stringify(told)}`);
  return told;
}

// Asks until an answer is right.
export async function until(ask) {
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    const found = await ask();
    if (found) return found;
    assert.ok(Date.now() < deadline, `${ask} was never right`);
    await new Promise((done) => setTimeout(done, 200));
  }
}
