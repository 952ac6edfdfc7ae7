// A real Chromium with everything off that would speak to the outside.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--no-default-browser-check", "--disable-dev-shm-usage",
];

/** Opens a browser with a fresh profile folder. `close` removes the folder. */
export async function openBrowser(options = {}) {
  const profile = mkdtempSync(join(tmpdir(), "pilotlight-ui-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: FLAGS,
    viewport: { width: 1600, height: 900 },
    colorScheme: "light",
    ...options,
  });
  const close = async () => {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  };
  return { context, close };
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
