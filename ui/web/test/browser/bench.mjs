// Main-thread CPU of the page in a real browser: first paint, hover, zoom. usage: npm run bench
import { readFileSync, readdirSync } from "node:fs";
import { startMock } from "../../dev/mock.mjs";
import { openBrowser, openPage } from "./browser.mjs";

const RUNS = Number(process.env.RUNS ?? 3);
const mock = await startMock(0);
const query = (service, view = "icicle") => `?view=${view}&type=process_cpu:cpu:nanoseconds:cpu:nanoseconds&from=1&until=3600&q={service_name="${service}"}`;

/** Seconds of main-thread CPU so far: DevTools' Performance domain over the thread's own clock. */
async function cpu(cdp) {
  const { metrics } = await cdp.send("Performance.getMetrics");
  return metrics.find((m) => m.name === "TaskDuration").value * 1e3;
}

/** CPU from navigation until the frame with the first flame graph is out (marks are told after their frame). */
async function measure(service, view) {
  const { context, close } = await openBrowser();
  const { page } = await openPage(context, mock.base);
  const cdp = await context.newCDPSession(page);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  // The page reports by itself: each question of the driver would cost CPU on the same thread.
  let report;
  const drawn = new Promise((done) => (report = done));
  await page.exposeBinding("reportDrawn", () => report());
  await page.addInitScript(() => {
    window.watchDrawn = new PerformanceObserver((list) => {
      if (list.getEntriesByName("flame-drawn").length > 0) window.reportDrawn();
    });
    window.watchDrawn.observe({ type: "mark" });
  });
  const before = await cpu(cdp);
  await page.goto(mock.base + query(service, view), { waitUntil: "commit" });
  await drawn;
  const load = (await cpu(cdp)) - before;
  await page.waitForTimeout(600);
  const hover = await hoverCpu(page, cdp);
  const zoom = await perEvent(page, "zoom");
  const scroll = await perEvent(page, "scroll");
  await close();
  return { load, hover, zoom, scroll };
}

/** Main-thread CPU of one pointer movement, over many in one task (layout and tooltip included). */
async function hoverCpu(page, cdp) {
  const events = 400;
  const before = await cpu(cdp);
  await page.evaluate((count) => new Promise((done) => setTimeout(() => {
    const host = document.querySelector(".flame");
    const box = host.getBoundingClientRect();
    for (let i = 0; i < count; i++) {
      const [x, y] = [20 + ((i * 137) % (box.width - 60)), 10 + ((i * 61) % (box.height - 30))];
      host.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + x, clientY: box.top + y, bubbles: true }));
    }
    done();
  })), events);
  return ((await cpu(cdp)) - before) / events;
}

/** Median milliseconds of the page's own handler, timed inside the page. */
function perEvent(page, kind) {
  return page.evaluate(async (what) => {
    const host = document.querySelector(".flame");
    const g = host.flameGraph;
    const box = host.getBoundingClientRect();
    const times = [];
    const timed = (f) => {
      const t = performance.now();
      f();
      times.push(performance.now() - t);
    };
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    for (let i = 0; i < 60; i++) {
      const [x, y] = [20 + ((i * 137) % (box.width - 60)), 10 + ((i * 61) % (box.height - 30))];
      if (what === "zoom") {
        const node = g.nodeAt(x, y % 200);
        timed(() => {
          g.zoomTo(node > 0 ? node : 0, false);
          g.drawNow();
        });
        g.zoomTo(0, false);
      }
      if (what === "scroll") {
        host.scrollTop = (i * 37) % Math.max(1, host.scrollHeight - host.clientHeight);
        timed(() => g.drawNow());
      }
      await frame();
    }
    times.sort((a, b) => a - b);
    return times[30];
  }, kind);
}

const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];

// Main-thread CPU of Pyroscope's component (UI v2, 2026-08) given the same kind of tree on a machine like ours; not run
// here, so no ratio.
const PEERS = {
  first_paint_small: "226..252ms", first_paint_100k: "407..444ms", first_paint_1m: "1461..2135ms",
  hover_small: "4.2..5.7ms", hover_100k: "5.0..5.4ms", hover_1m: "5.0..6.0ms",
};

function figure(name, value, goal, unit, digits) {
  const peer = PEERS[name] ? ` peer=${PEERS[name]}(noted)` : "";
  const verdict = value <= goal ? "ok" : "MISS";
  console.log(`FIGURE ui/${name} value=${value.toFixed(digits)}${unit} goal=<=${goal}${unit}${peer} ${verdict}`);
}

await measure("checkout");
for (const [service, short, goalLoad] of [["checkout", "small", 150], ["synthetic-100k", "100k", 150], ["synthetic-1m", "1m", 400]]) {
  await fetch(`${mock.base}api/v1/tree${query(service)}`).then((r) => r.arrayBuffer());
  const runs = [];
  for (let i = 0; i < RUNS; i++) runs.push(await measure(service));
  figure(`first_paint_${short}`, median(runs.map((r) => r.load)), goalLoad, "ms", 0);
  figure(`hover_${short}`, median(runs.map((r) => r.hover)), 1, "ms", 2);
  figure(`zoom_draw_${short}`, median(runs.map((r) => r.zoom)), 16, "ms", 1);
  figure(`scroll_draw_${short}`, median(runs.map((r) => r.scroll)), 16, "ms", 1);
}
const both = [];
for (let i = 0; i < RUNS; i++) both.push((await measure("synthetic-100k", "both")).load);
figure("first_paint_both_100k", median(both), 150, "ms", 0);
const dist = new URL("../../../dist/", import.meta.url);
const bytes = readdirSync(dist).reduce((n, f) => n + readFileSync(new URL(f, dist)).length, 0);
figure("bundle_gz", bytes / 1000, 120, "kB", 1);
await mock.close();
