// A real Chromium with everything off that would speak to the outside.
import { chromium } from "playwright-core";

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--no-default-browser-check", "--disable-dev-shm-usage",
];

/** Starts a browser; Playwright gives it a fresh profile folder and removes it. */
export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: FLAGS });
}

/** A context without history, cache or storage of others. */
export function newContext(browser, options = {}) {
  return browser.newContext({ viewport: { width: 1600, height: 900 }, colorScheme: "light", ...options });
}

/** A browser of its own with one context. */
export async function openBrowser(options = {}) {
  const browser = await launch();
  return { context: await newContext(browser, options), close: () => browser.close() };
}

/** A page that remembers console errors, failures and requests to elsewhere than `base`. */
export async function openPage(context, base) {
  const page = await context.newPage();
  const seen = { errors: [], foreign: [] };
  page.on("console", (m) => m.type() === "error" && seen.errors.push(m.text()));
  page.on("pageerror", (e) => seen.errors.push(String(e)));
  page.on("request", (r) => {
    const url = new URL(r.url());
    if (url.origin !== new URL(base).origin && !["data:", "blob:"].includes(url.protocol)) seen.foreign.push(r.url());
  });
  return { page, seen };
}

/** Waits until the page shows a state: ready, empty, error. */
export async function waitState(page, state, timeout = 15_000) {
  await page.waitForFunction((s) => document.documentElement.dataset.state === s, state, { timeout });
}

/** Two animation frames: what was asked for is drawn. */
export async function settle(page) {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}
