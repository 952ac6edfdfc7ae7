// Opens the page of a running server and checks it as a user would.
// usage: node test/browser/live.mjs URL FUNCTION SHARE TOLERANCE
//   URL        of the page; may carry a view, e.g. http://127.0.0.1:4040/?q={service_name="checkout"}&from=now-5m
//   FUNCTION   whole name or a part of it; the heaviest function whose name holds it is taken
//   SHARE      expected share of the total, 0 to 1; TOLERANCE: allowed distance
// The same by environment: UI_URL, UI_FUNCTION, UI_SHARE, UI_TOLERANCE; also
//   UI_COLUMN=total|self (default total), UI_WAIT=seconds to wait for data (default 30), UI_SHOT=file.png
// Exit 0: all well. 1: a check failed, said on stderr. 2: usage.
import assert from "node:assert/strict";
import { findings } from "./axe.mjs";
import { openBrowser, openPage, settle } from "./browser.mjs";

const [url, wanted, share, tolerance] = ["URL", "FUNCTION", "SHARE", "TOLERANCE"].map((k, i) => process.argv[2 + i] ?? process.env[`UI_${k}`]);
const column = process.env.UI_COLUMN ?? "total";
const wait = Number(process.env.UI_WAIT ?? 30) * 1e3;
if (!url || !wanted || !(Number(share) >= 0) || !(Number(tolerance) >= 0)) {
  console.error("usage: node live.mjs URL FUNCTION SHARE TOLERANCE");
  process.exit(2);
}

const escaped = wanted.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
const state = (page) => page.evaluate(() => document.documentElement.dataset.state);
const words = (page) => page.locator("body").innerText().then((t) => t.slice(0, 600));

/** Waits for a flame graph; a page without one says why. */
async function waitReady(page) {
  await page.waitForFunction(() => document.documentElement.dataset.state === "ready" && document.querySelector("[data-testid=total]"), null, { timeout: wait }).catch(async () => {
    throw new Error(`no flame graph within ${wait / 1e3} s; the page is in state "${await state(page)}" and says:\n${await words(page)}`);
  });
}

/** The rows of the table under the search, heaviest first. */
async function rows(page) {
  await page.waitForSelector("[data-testid=top] tbody tr[data-name], [data-testid=top] .table-note");
  await settle(page);
  return page.locator("[data-testid=top] tbody tr[data-name]").evaluateAll((list) => list.map((r) => ({ name: r.dataset.name, self: Number(r.dataset.self), total: Number(r.dataset.total) })));
}

async function checkShare(page) {
  await page.keyboard.press("/");
  await page.keyboard.type(escaped);
  await page.waitForFunction((w) => new URL(location.href).searchParams.get("search") === w, escaped);
  const found = await rows(page);
  assert.ok(found.length > 0, `no function with "${wanted}" in its name; the page says:\n${await words(page)}`);
  const row = found.find((r) => r.name === wanted) ?? found.reduce((a, b) => (b[column] > a[column] ? b : a));
  const total = Number(await page.locator("[data-testid=total]").getAttribute("data-value"));
  const seen = row[column] / total;
  console.log(`LIVE function="${row.name}" ${column}=${seen.toFixed(4)} expected=${share} tolerance=${tolerance} matched=${await page.locator("[data-testid=matched]").getAttribute("data-share")}`);
  assert.ok(Math.abs(seen - Number(share)) <= Number(tolerance), `share of ${row.name} on the page is ${seen.toFixed(4)}, expected ${share} ± ${tolerance}`);
  const matched = Number(await page.locator("[data-testid=matched]").getAttribute("data-share"));
  assert.ok(matched >= row.total / total - 1e-9, `matched share ${matched} is less than the function's own ${row.total / total}`);
  return row.name;
}

/** Stops the live refresh, so that a reload sees the same data. */
async function holdStill(page) {
  if ((await page.locator("button.live").getAttribute("aria-pressed")) === "true") await page.click("button.live");
  await page.waitForFunction(() => !/until=now|from=now/.test(location.search) && location.search.includes("until="));
  await page.waitForTimeout(500);
  await waitReady(page);
}

async function zoom(page, name) {
  await page.evaluate((wantedName) => {
    const host = document.querySelector(".flame");
    const g = host.flameGraph;
    const { names, name: ids } = g.layout.columns;
    let node = -1;
    for (let i = 1; i < ids.length; i++) if (names[ids[i]] === wantedName && (node < 0 || g.layout.total[i] > g.layout.total[node])) node = i;
    g.focusOn(node);
    host.focus();
  }, name);
  await page.keyboard.press("Enter");
  await page.waitForSelector("[data-testid=crumbs]", { timeout: 5000 }).catch(() => { throw new Error(`Enter on the box of ${name} did not zoom`); });
  await page.waitForTimeout(300);
}

const look = async (page) => ({
  url: page.url(),
  zoom: await page.locator("[data-testid=zoom-share]").getAttribute("data-share"),
  matched: await page.locator("[data-testid=matched]").getAttribute("data-share"),
  rows: await rows(page),
});

/** The same link shows the same view. Captures that began inside the window may still arrive: then it is asked again. */
async function checkReload(page) {
  let before = await look(page);
  for (let round = 0; ; round++) {
    await page.reload();
    await waitReady(page);
    await page.waitForSelector("[data-testid=top] tbody tr[data-name]");
    await page.waitForTimeout(300);
    const after = await look(page);
    try {
      return assert.deepEqual(after, before, "the reloaded link shows another view");
    } catch (e) {
      if (round === 6) throw e;
    }
    before = after;
    await page.waitForTimeout(4000);
  }
}

const { context, close } = await openBrowser();
let code = 0;
try {
  const { page, seen } = await openPage(context, url);
  await page.goto(url);
  await waitReady(page);
  const name = await checkShare(page);
  await holdStill(page);
  await zoom(page, name);
  await checkReload(page);
  assert.deepEqual(await findings(page), [], "axe");
  if (process.env.UI_SHOT) await page.screenshot({ path: process.env.UI_SHOT });
  assert.deepEqual(seen.errors, [], "console errors");
  assert.deepEqual(seen.foreign, [], "requests to elsewhere");
  console.log("LIVE ok: share, search, zoom, reload, axe, no console error, no foreign request");
} catch (e) {
  code = 1;
  console.error(`LIVE FAIL: ${e.message ?? e}`);
} finally {
  await close();
}
process.exit(code);
