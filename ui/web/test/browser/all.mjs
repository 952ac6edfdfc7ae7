// Drives the page in a real Chromium against the mock server. usage: npm run test:browser [name part]
import { readFile } from "node:fs/promises";
import assert from "node:assert/strict";
import { startMock } from "../../dev/mock.mjs";
import { HOT, HOT_SHARE } from "../../dev/synthetic.mjs";
import { findings } from "./axe.mjs";
import { launch, newContext, openPage, settle, waitState } from "./browser.mjs";

const tests = [];
const test = (name, run, options) => tests.push({ name, run, options });
const service = (name) => `?q={service_name="${name}"}`;
const row = (page, name) => page.locator(`[data-testid=top] tr[data-name="${name}"]`);
const params = (page) => Object.fromEntries(new URL(page.url()).searchParams);

/** Share of a function in the table, from its data attributes. */
async function share(page, name, column) {
  const value = Number(await row(page, name).getAttribute(`data-${column}`));
  return value / Number(await page.locator("[data-testid=total]").getAttribute("data-value"));
}

/** Middle of a function's heaviest box on screen. */
async function boxOf(page, name) {
  return page.evaluate((wanted) => {
    const host = document.querySelector(".flame");
    const g = host.flameGraph;
    const { names, name: ids } = g.layout.columns;
    let node = -1;
    ids.forEach((id, i) => {
      if (names[id] === wanted && (node < 0 || g.layout.total[i] > g.layout.total[node])) node = i;
    });
    const r = g.rectOf(node);
    const at = host.getBoundingClientRect();
    return { x: at.left + (r.left + r.right) / 2, y: at.top + (r.top + r.bottom) / 2, width: r.right - r.left };
  }, name);
}

async function pixel(page, x, y) {
  return page.evaluate(([px, py]) => {
    const canvas = document.querySelector(".flame-canvas");
    const at = canvas.getBoundingClientRect();
    return [...canvas.getContext("2d").getImageData(px - at.left, py - at.top, 1, 1).data];
  }, [x, y]);
}

test("opens with flame graph and table, and the hot function has its share", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  assert.equal(await share(page, HOT, "self"), HOT_SHARE);
  assert.equal(await share(page, HOT, "total"), HOT_SHARE);
  assert.equal(await page.locator("[data-testid=top] tbody tr[data-name]").first().getAttribute("data-name"), HOT);
  await settle(page);
  const box = await boxOf(page, HOT);
  const colour = await pixel(page, box.x + box.width / 2 - 4, box.y - 8);
  assert.ok(colour[0] > colour[2] + 60, `own code is amber, not ${colour}`);
  assert.equal(params(page).type, "process_cpu:cpu:nanoseconds:cpu:nanoseconds");
});

test("a click zooms, the crumbs lead back, and Back undoes", async ({ page, base }) => {
  await page.goto(`${base}?view=icicle`);
  await waitState(page, "ready");
  const before = await boxOf(page, "checkout::pricing::total");
  await page.mouse.click(before.x, before.y);
  await page.waitForSelector("[data-testid=crumbs]");
  await page.waitForTimeout(300);
  const after = await boxOf(page, "checkout::pricing::total");
  const host = await page.locator(".flame").evaluate((e) => e.clientWidth);
  assert.ok(Math.abs(after.width - host) < 1, `zoomed box is ${after.width} of ${host}`);
  assert.equal(params(page).zoom, "checkout::pricing::total");
  assert.equal(Number(await page.locator("[data-testid=zoom-share]").getAttribute("data-share")).toFixed(3), "0.360");
  await page.goBack();
  await page.waitForSelector("[data-testid=crumbs]", { state: "detached" });
  await page.goForward();
  await page.waitForSelector("[data-testid=crumbs]");
  await page.click(".crumb-reset");
  assert.equal(params(page).zoom, undefined);
});

test("a comparison shows what changed, by how much, and whether it may be chance", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  await page.click("[data-testid=compare]");
  await page.waitForSelector("[data-testid=difftop] tr[data-name]");
  assert.match(params(page).base_from, /^\d+$/);
  const hot = page.locator(`[data-testid=difftop] tr[data-name="${HOT}"]`);
  assert.equal(await hot.getAttribute("data-real"), "true");
  assert.equal(await page.locator("[data-testid=difftop] tbody tr[data-name]").first().getAttribute("data-real"), "true");
  const change = Number(await hot.getAttribute("data-change"));
  assert.ok(Math.abs(change - (HOT_SHARE - HOT_SHARE / 2 / (1 - HOT_SHARE / 2))) < 0.002, `${change} of ${HOT_SHARE}`);
  await settle(page);
  const box = await boxOf(page, HOT);
  const red = await pixel(page, box.x + box.width / 2 - 4, box.y - 8);
  assert.ok(red[0] > red[2] + 40, `more is red, not ${red}`);
  assert.match(await page.locator("[data-testid=events]").innerText(), /5.000/);
  await page.fill("[aria-label='Labels of the base']", '{version="few"}');
  await page.keyboard.press("Enter");
  await page.waitForSelector("[data-testid=difftop] tr.chance");
  await page.check(".only-real input");
  await page.waitForSelector("text=No change is more than chance.");
  assert.deepEqual(await findings(page), []);
  await page.click("[data-testid=compare]");
  await page.waitForSelector("[data-testid=top]");
  assert.equal(params(page).base_q, undefined);
});

test("frames without a name say in which binaries they are, and why", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  await page.click("[data-testid=unknown]");
  await page.waitForSelector("text=debuginfo upload FILE");
  assert.match(await page.locator(".unknown").innerText(), /libssl/);
});

test("search shows the matched share without double count, and lights the boxes", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  await page.keyboard.press("/");
  await page.keyboard.type("pricing::(total|apply)");
  const matched = page.locator("[data-testid=matched]");
  assert.equal(Number(await matched.getAttribute("data-share")).toFixed(4), "0.4350");
  assert.match(await matched.innerText(), /43\.5 % in 2 functions/);
  await settle(page);
  const box = await boxOf(page, HOT);
  assert.deepEqual(await pixel(page, box.x + box.width / 2 - 4, box.y - 8), [0xb3, 0x20, 0x6f, 255]);
  assert.equal(await page.locator("[data-testid=top] tbody tr[data-name]").count(), 2);
  assert.equal(params(page).search, "pricing::(total|apply)");
});

test("a pattern that is no regular expression is searched as text and says so", async ({ page, base }) => {
  await page.goto(`${base}?search=${encodeURIComponent("call_once{{vtable.shim}}(")}`);
  await waitState(page, "ready");
  assert.match(await page.locator(".search .field-note").innerText(), /Searched as plain text/);
});

test("a row of the table searches for exactly that function", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  await row(page, HOT).click();
  assert.equal(await page.locator("[data-testid=matched]").getAttribute("data-share"), String(HOT_SHARE));
  assert.equal(await row(page, HOT).getAttribute("aria-selected"), "true");
  await row(page, HOT).click();
  assert.equal(params(page).search, undefined);
});

test("the table sorts by each column", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  await page.click("th:has-text('Total') button");
  const first = page.locator("[data-testid=top] tbody tr[data-name]").first();
  assert.equal(await first.getAttribute("data-total"), "9850000000");
  assert.equal(params(page).sort, "total");
  await page.click("th:has-text('Function') button");
  assert.equal(params(page).sort, "name");
});

test("dragging over the series chooses the time", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  await page.waitForSelector(".series .u-over");
  await page.waitForTimeout(300);
  const plot = await page.locator(".series .u-over").boundingBox();
  const [from, until] = await page.locator(".series").evaluate((e) => [Number(e.dataset.from), Number(e.dataset.until)]);
  await page.mouse.move(plot.x + plot.width * 0.25, plot.y + 20);
  await page.mouse.down();
  await page.mouse.move(plot.x + plot.width * 0.4, plot.y + 25, { steps: 5 });
  await page.mouse.move(plot.x + plot.width * 0.5, plot.y + 25, { steps: 5 });
  await page.mouse.up();
  await page.waitForFunction(() => !location.search.includes("now") && location.search.includes("from="));
  const given = params(page);
  const at = (t) => (Number(t) - from) / (until - from);
  assert.ok(Math.abs(at(given.from) - 0.25) < 0.02, `from at ${at(given.from)}`);
  assert.ok(Math.abs(at(given.until) - 0.5) < 0.02, `until at ${at(given.until)}`);
  await page.goBack();
  assert.equal(params(page).from, undefined);
});

test("costs split by a label, and a click selects the value", async ({ page, base }) => {
  await page.goto(base + service("checkout"));
  await waitState(page, "ready");
  await page.click("[data-view=split]");
  await page.waitForSelector("[data-testid=split] tr[data-value]");
  await page.selectOption("[data-testid=split-by]", "pod");
  await page.waitForSelector("[data-testid=split] tr:has-text('(without pod)')");
  const shares = await page.locator("[data-testid=split] .percent").allInnerTexts();
  assert.deepEqual(shares, ["75.0 %", "20.0 %", "5.00 %"]);
  assert.equal(params(page).by, "pod");
  assert.deepEqual(await findings(page), []);
  await page.click("[data-testid=split] tr[data-value='b-1']");
  await waitState(page, "ready");
  assert.equal(params(page).q, '{service_name="checkout",pod="b-1"}');
  await page.waitForSelector("[data-testid=top] tr[data-name]");
  await page.goBack();
  await page.waitForSelector("[data-testid=split] tr[data-value]");
}, {});

test("a link reproduces the whole view", async ({ page, base, context }) => {
  await page.goto(`${base}${service("checkout")}`);
  await waitState(page, "ready");
  await page.click("[data-view=flame]");
  await page.click("[data-view=both]");
  await page.keyboard.press("/");
  await page.keyboard.type("serde_json");
  await page.keyboard.press("Escape");
  await page.evaluate(() => document.activeElement?.blur());
  await page.click("th:has-text('Total') button");
  const box = await boxOf(page, "checkout::routes::cart::{{closure}}");
  await page.mouse.click(box.x, box.y);
  await page.waitForTimeout(300);
  const look = async (p) => ({
    url: p.url(),
    matched: await p.locator("[data-testid=matched]").getAttribute("data-share"),
    zoom: await p.locator("[data-testid=zoom-share]").getAttribute("data-share"),
    rows: await p.locator("[data-testid=top] tbody tr[data-name]").evaluateAll((rows) => rows.map((r) => r.dataset.name)),
    direction: await p.locator(".flame").getAttribute("data-direction"),
    chip: await p.locator(".chip-text").innerText(),
    range: await p.evaluate(() => { const g = document.querySelector(".flame").flameGraph; return [g.from, g.to]; }),
  });
  const before = await look(page);
  await page.reload();
  await waitState(page, "ready");
  await page.waitForTimeout(300);
  assert.deepEqual(await look(page), before);
  const other = await context.newPage();
  await other.goto(before.url);
  await waitState(other, "ready");
  await other.waitForTimeout(300);
  assert.deepEqual(await look(other), before);
  assert.equal(before.direction, "flame");
  assert.ok(before.rows.length > 0 && before.zoom);
});

test("the keyboard walks the graph, zooms and resets", async ({ page, base }) => {
  await page.goto(`${base}?view=icicle`);
  await waitState(page, "ready");
  await page.locator(".flame").focus();
  const spoken = () => page.locator("[data-testid=spoken]").innerText();
  await page.keyboard.press("ArrowDown");
  assert.match(await spoken(), /^clone3, 98\.5 % total/);
  await page.keyboard.press("ArrowRight");
  assert.match(await spoken(), /^_start, 1\.50 % total/);
  await page.keyboard.press("ArrowLeft");
  for (let i = 0; i < 12; i++) await page.keyboard.press("ArrowDown");
  assert.match(await spoken(), /^checkout::pricing::apply_discounts, 30\.0 % total, 30\.0 % self, depth 13, 0 callees/);
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Enter");
  await page.waitForSelector("[data-testid=crumbs]");
  assert.equal(params(page).zoom, "checkout::pricing::total");
  await page.keyboard.press("Backspace");
  assert.equal(params(page).zoom, "checkout::routes::cart::{{closure}}");
  await page.keyboard.press("Escape");
  assert.equal(params(page).zoom, undefined);
});

test("in flame direction the arrows follow the picture", async ({ page, base }) => {
  await page.goto(`${base}?view=flame`);
  await waitState(page, "ready");
  await page.locator(".flame").focus();
  await page.keyboard.press("ArrowUp");
  assert.match(await page.locator("[data-testid=spoken]").innerText(), /^clone3/);
});

test("the call tree is a tree grid that keys unfold", async ({ page, base }) => {
  await page.goto(`${base}?view=tree`);
  await waitState(page, "ready");
  const rows = page.locator("[role=treegrid] tbody tr[data-name]");
  assert.equal(await rows.first().getAttribute("aria-level"), "1");
  assert.equal(await rows.first().getAttribute("aria-expanded"), "true");
  await rows.first().focus();
  await page.keyboard.press("ArrowLeft");
  assert.equal(await rows.count(), 1);
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await settle(page);
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-level")), "2");
});

test("labels are chosen with suggestions and become part of the link", async ({ page, base, mock }) => {
  await page.goto(base);
  await waitState(page, "ready");
  const box = page.getByRole("combobox", { name: "Select by labels" });
  await box.focus();
  await box.pressSequentially("serv");
  await page.getByRole("option", { name: "service_name" }).click();
  await page.getByRole("option", { name: "synthetic-8k" }).click();
  await page.waitForFunction(() => document.querySelector(".flame")?.dataset.nodes === "8192");
  assert.equal(params(page).q, '{service_name="synthetic-8k"}');
  assert.ok(mock.state.log.some((l) => l.startsWith("/api/v1/labels/service_name/values")));
  await page.click(".chip-x");
  assert.equal(params(page).q, undefined);
  await box.fill('pod=~"a');
  await page.keyboard.press("Enter");
  assert.match(await page.locator(".selector .field-note").innerText(), /add a quote/);
});

test("the legend shows one origin alone", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  await page.click(".origin:has-text('libc')");
  assert.equal(params(page).origin, "libc");
  const names = await page.locator("[data-testid=top] tbody tr[data-name]").evaluateAll((rows) => rows.map((r) => r.dataset.name));
  assert.ok(names.includes("malloc") && !names.includes(HOT), String(names));
});

test("folded frames leave graph and table, and the sum stays", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  const nodes = () => page.locator(".flame").getAttribute("data-nodes").then(Number);
  const names = () => page.evaluate(() => {
    const { names, name } = document.querySelector(".flame").flameGraph.layout.columns;
    return [...new Set(Array.from(name, (id) => names[id]))];
  });
  const total = () => page.evaluate(() => document.querySelector(".flame").flameGraph.layout.total[0]);
  const [before, sum] = [await nodes(), await total()];
  assert.ok((await names()).includes("malloc"));
  await page.click("[data-fold=libc]");
  assert.equal(params(page).fold, "libc");
  assert.ok((await nodes()) < before);
  const left = await names();
  assert.ok(left.includes(HOT) && !left.includes("malloc"), String(left));
  assert.equal(await total(), sum);
  await page.waitForSelector(`[data-testid=top] tr[data-name="${HOT}"]`);
  await page.click("[data-fold=libc]");
  assert.deepEqual([params(page).fold, await nodes()], [undefined, before]);
});

test("a sandwich shows a function's callers and callees, and a click takes another", async ({ page, base }) => {
  await page.goto(`${base}?view=sandwich&search=^malloc$`);
  await waitState(page, "ready");
  const side = (which) => page.locator(`[data-testid=${which}] .flame`).evaluate((host) => {
    const { columns, total } = host.flameGraph.layout;
    return { root: columns.names[columns.name[0]], total: total[0], frames: columns.depth.length };
  });
  const [callers, callees] = [await side("callers"), await side("callees")];
  assert.deepEqual([callers.root, callees.root, callers.total], ["malloc", "malloc", callees.total]);
  assert.ok(callers.frames > 2 && callers.total > 0, JSON.stringify(callers));
  await page.click(`[data-testid=top] tr[data-name="${HOT}"]`);
  assert.equal(await page.locator("[data-testid=sandwich]").getAttribute("data-name"), HOT);
  assert.equal((await side("callers")).root, HOT);
});

test("the page is saved as collapsed stacks, as a picture, as pprof", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  const saved = async (what) => {
    await page.click("[data-testid=save]");
    const [file] = await Promise.all([page.waitForEvent("download"), page.click(`.save-menu >> text=${what}`)]);
    return [file.suggestedFilename(), await readFile(await file.path())];
  };
  const [name, stacks] = await saved("Collapsed");
  const values = stacks.toString().trimEnd().split("\n").map((line) => /^(.+) (\d+)$/.exec(line));
  assert.equal(name, "profile.collapsed.txt");
  const total = await page.evaluate(() => document.querySelector(".flame").flameGraph.layout.total[0]);
  assert.equal(values.reduce((sum, [, , value]) => sum + Number(value), 0), total);
  assert.ok(values.some(([, path]) => path.split(";").includes(HOT)));
  const [pictureName, picture] = await saved("Picture");
  assert.deepEqual([pictureName, picture.subarray(1, 4).toString()], ["profile.png", "PNG"]);
  const width = await page.evaluate(() => document.querySelector(".flame-canvas").width);
  assert.equal(picture.readUInt32BE(16), width);
  await page.click("[data-testid=save]");
  assert.match(await page.locator(".save-menu a").getAttribute("href"), /\/api\/v1\/pprof\?/);
});

test("a deploy is marked on the chart, and a click compares it with the version before", async ({ page, base }) => {
  await page.goto(base + service("checkout"));
  await waitState(page, "ready");
  const mark = page.locator(".deploy");
  await mark.waitFor();
  assert.match(await mark.getAttribute("aria-label"), /^version 1\.5 from .*: compare with 1\.4$/);
  const [box, chart] = [await mark.boundingBox(), await page.locator(".series .u-over").boundingBox()];
  assert.ok(Math.abs(box.x - (chart.x + 0.6 * chart.width)) < 8, `${box.x} of ${chart.x} + 0.6 × ${chart.width}`);
  await mark.click();
  await page.waitForSelector("[data-testid=compare-bar]");
  assert.deepEqual([params(page).q, params(page).base_q], ['{service_name="checkout",version="1.5"}', '{service_name="checkout",version="1.4"}']);
  assert.equal(await page.locator(".deploy").count(), 0);
});

test("the inverted graph begins with what costs by itself", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  const first = () => page.evaluate(() => {
    const { columns, total } = document.querySelector(".flame").flameGraph.layout;
    const tops = [...columns.depth].flatMap((depth, node) => (depth === 1 ? [[columns.names[columns.name[node]], total[node]]] : []));
    return [total[0], ...tops.sort((a, b) => b[1] - a[1])[0]];
  });
  const [total] = await first();
  await page.click("[data-testid=invert]");
  const self = Number(await row(page, HOT).evaluate((r) => r.querySelector(".percent").textContent.replace(/[^0-9.]/g, "")));
  const [inverted, name, value] = await first();
  assert.deepEqual([inverted, name, params(page).invert], [total, HOT, "1"]);
  assert.ok(Math.abs((100 * value) / total - self) < 0.06, `${value} of ${total}, the table says ${self} %`);
});

test("a live page refreshes and keeps zoom, focus and search", async ({ page, base, mock }) => {
  await page.goto(`${base}?view=icicle&zoom=checkout::pricing::total&search=tax`);
  await waitState(page, "ready");
  await page.locator(".flame").focus();
  await page.keyboard.press("ArrowDown");
  const look = () => page.evaluate(() => { const g = document.querySelector(".flame").flameGraph; return [g.from, g.to, g.focusNode]; });
  const before = await look();
  mock.state.log.length = 0;
  await page.waitForTimeout(5600);
  assert.ok(mock.state.log.some((l) => l.startsWith("/api/v1/tree")), "asked again within 5 s");
  assert.deepEqual(await look(), before);
});

test("an empty selection says what is scraped and what to do", async ({ page, base }) => {
  await page.goto(base + service("empty"));
  await waitState(page, "empty");
  await page.waitForSelector(".targets");
  assert.match(await page.locator("[data-testid=empty]").innerText(), /No samples in this selection[\s\S]*connection refused: is the service running\?/);
  await page.getByRole("button", { name: "Remove all label conditions" }).click();
  await waitState(page, "ready");
});

test("a match out of sight is scrolled to", async ({ page, base }) => {
  await page.setViewportSize({ width: 1200, height: 420 });
  for (const dir of ["icicle", "flame"]) {
    await page.goto(`${base}?view=${dir}`);
    await waitState(page, "ready");
    await page.keyboard.press("/");
    await page.keyboard.type("apply_disc");
    await settle(page);
    const [box, host] = [await boxOf(page, HOT), await page.locator("div.flame").boundingBox()];
    assert.ok(box.y > host.y && box.y < host.y + host.height, `${dir}: box at ${box.y}, graph ${host.y} to ${host.y + host.height}`);
  }
});

test("a type without data in the window is an empty selection, not a failure", async ({ page, base }) => {
  await page.goto(`${base}?type=nope`);
  await waitState(page, "empty");
  assert.match(await page.locator("[data-testid=empty]").innerText(), /No samples in this selection/);
}, { errorsAllowed: /404/ });

test("a fresh server says how to begin", async ({ page, base, mock }) => {
  mock.state.mode = "fresh";
  await page.goto(base);
  await waitState(page, "empty");
  assert.match(await page.locator("[data-testid=empty]").innerText(), /Nothing has arrived yet[\s\S]*cargo add pilotlight/);
  mock.state.mode = "up";
  await waitState(page, "ready", 9000);
});

test("an error names what failed, keeps the page, and can be tried again", async ({ page, base }) => {
  await page.goto(base + service("broken"));
  await waitState(page, "error");
  assert.match(await page.locator("[data-testid=error]").innerText(), /The server failed \(500\)[\s\S]*segment 0004[\s\S]*make the folder readable/);
}, { errorsAllowed: /500/ });

test("a server that goes away is said, the picture stays, and the page heals itself", async ({ page, base, mock }) => {
  await page.goto(base);
  await waitState(page, "ready");
  mock.state.mode = "down";
  await waitState(page, "error", 9000);
  assert.match(await page.locator("[data-testid=error]").innerText(), /No connection/);
  assert.equal(await row(page, HOT).count(), 1);
  mock.state.mode = "up";
  await waitState(page, "ready", 9000);
}, { errorsAllowed: /ERR_|Failed to load/ });

test("a partial answer says what is missing", async ({ page, base }) => {
  await page.goto(base + service("partial"));
  await waitState(page, "ready");
  assert.match(await page.locator("[data-testid=status]").innerText(), /cut 1\s200[\s\S]*partial: 1 unreadable/);
  await page.click(".problems summary");
  assert.match(await page.locator(".problems ul").innerText(), /checksum differs/);
});

test("hostile names are drawn as text and run nothing", async ({ page, base }) => {
  for (const view of ["both", "tree"]) {
    await page.goto(`${base}${service("hostile")}&view=${view}&zoom=${encodeURIComponent("<img src=x onerror=alert(1)>")}`);
    await waitState(page, "ready");
    await page.waitForTimeout(300);
    assert.equal(await page.locator("img, svg[onload], script:not([src])").count(), 0);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.match(await page.locator("body").innerText(), /<img src=x onerror=alert\(1\)>/);
  }
});

test("hover tells name and cost", async ({ page, base }) => {
  await page.goto(base);
  await waitState(page, "ready");
  const box = await boxOf(page, HOT);
  await page.mouse.move(box.x, box.y);
  await settle(page);
  assert.match(await page.locator(".tooltip.shown").innerText(), /checkout::pricing::apply_discounts\ntotal 3 s \(30\.0 %\)\nself 3 s \(30\.0 %\)\napp · depth 13/);
});

for (const scheme of ["light", "dark"]) {
  test(`axe finds nothing serious in any view, ${scheme}`, async ({ page, base, mock }) => {
    for (const query of ["", "?view=tree", "?view=sandwich&fold=libc", service("checkout"), "?view=flame&zoom=checkout::pricing::total&search=serde", service("partial"), service("empty")]) {
      await page.goto(base + query);
      await page.waitForFunction(() => ["ready", "empty"].includes(document.documentElement.dataset.state));
      await page.waitForTimeout(400);
      assert.deepEqual(await findings(page), [], `at ${query || "/"}`);
    }
    await page.goto(base);
    await waitState(page, "ready");
    await page.click("[data-testid=time]");
    assert.deepEqual(await findings(page), [], "time menu");
    await page.keyboard.press("Escape");
    await page.click("[data-testid=save]");
    assert.deepEqual(await findings(page), [], "save menu");
    await page.keyboard.press("Escape");
    await page.getByRole("combobox", { name: "Select by labels" }).focus();
    await page.waitForSelector("[role=option]");
    assert.deepEqual(await findings(page), [], "label choices");
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("?");
    assert.deepEqual(await findings(page), [], "help");
    mock.state.mode = "fresh";
    await page.goto(base);
    await waitState(page, "empty");
    assert.deepEqual(await findings(page), [], "first steps");
  }, { colorScheme: scheme });
}

const wanted = process.argv[2] ?? "";
const mock = await startMock(0);
const browser = await launch();
let failed = 0;
for (const { name, run, options = {} } of tests.filter((t) => t.name.includes(wanted))) {
  const context = await newContext(browser, { colorScheme: options.colorScheme ?? "light" });
  mock.state.mode = "up";
  mock.state.log.length = 0;
  const { page, seen } = await openPage(context, mock.base);
  try {
    await run({ page, context, mock, base: mock.base });
    const errors = seen.errors.filter((e) => !options.errorsAllowed?.test(e));
    assert.deepEqual(errors, [], "console errors");
    assert.deepEqual(seen.foreign, [], "requests to elsewhere");
    console.log(`ok   ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAIL ${name}\n     ${String(e.message ?? e).split("\n").slice(0, 12).join("\n     ")}`);
  }
  await context.close();
}
await browser.close();
await mock.close();
console.log(failed === 0 ? "all passed" : `${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
