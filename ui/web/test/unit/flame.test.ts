import assert from "node:assert/strict";
import { test } from "node:test";
import { childEntries, deepestLevel, entryAt, entryOf, findKey, layout, maskNames, matchedValue, matchesBefore, nodeKey, parentOf, pathTo, subtreeEnd, followNames, namesTo } from "../../src/flame/index.ts";
import { Raster, type Frame } from "../../src/flame/raster.ts";
import { palette } from "../../src/flame/palette.ts";
import { LIGHT } from "../../src/view/theme.ts";
import { zipf } from "../../dev/synthetic.mjs";
import { SMALL, tree } from "./fixtures.ts";

const l = layout(SMALL);

test("totals are own value plus children", () => {
  assert.deepEqual([...l.total], [100, 60, 50, 20, 40]);
});

test("children stand at their caller's left edge, in order", () => {
  const spans = [0, 1, 2, 3, 4].map((n) => [l.levelStart[entryOf(l, n)], l.levelEnd[entryOf(l, n)]]);
  assert.deepEqual(spans, [[0, 100], [0, 60], [0, 50], [0, 20], [60, 100]]);
});

test("the box under a point is found on each level, and none beside boxes", () => {
  const at = (level: number, x: number) => {
    const entry = entryAt(l, level, x);
    return entry < 0 ? -1 : l.levelNode[entry];
  };
  assert.deepEqual([at(1, 59.9), at(1, 60), at(2, 49), at(2, 50), at(3, 19), at(3, 20), at(9, 1), at(-1, 1)], [1, 4, 2, -1, 3, -1, -1, -1]);
});

test("parents, children, paths and subtrees agree on a random tree", () => {
  const z = layout(zipf(5000, 3));
  const { depth } = z.columns;
  for (let n = 1; n < z.count; n += 7) {
    const p = parentOf(z, n);
    assert.equal(depth[p], depth[n]! - 1);
    const [from, to] = childEntries(z, p);
    assert.ok(entryOf(z, n) >= from && entryOf(z, n) < to);
    assert.equal(pathTo(z, n).length, depth[n]! + 1);
    let end = n + 1;
    while (end < z.count && depth[end]! > depth[n]!) end++;
    assert.equal(subtreeEnd(z, n), end);
    assert.equal(deepestLevel(z, n), Math.max(...depth.slice(n, end)));
  }
});

test("matched share counts a match inside a match once", () => {
  assert.equal(matchedValue(l, maskNames(SMALL.names, (n) => n === "a")), 60);
  assert.equal(matchedValue(l, maskNames(SMALL.names, (n) => n === "b" || n === "c")), 90);
  assert.equal(matchedValue(l, maskNames(SMALL.names, () => false)), 0);
});

test("matches before an entry count in level order", () => {
  const before = matchesBefore(l, maskNames(SMALL.names, (n) => n === "a"));
  assert.deepEqual([...before], [0, 0, 1, 1, 1, 2]);
});

test("a key is the bare name for the heaviest node of that name, and exact for the others", () => {
  assert.equal(nodeKey(l, 0), "");
  assert.equal(nodeKey(l, 1), "a");
  const inner = nodeKey(l, 3);
  assert.match(inner, /^a@3\.[0-9a-f]{8}$/);
  assert.deepEqual(["", "a", inner, "b", "gone"].map((k) => findKey(l, k)), [0, 1, 3, 2, 0]);
});

test("a key whose path is gone falls back to the heaviest node of the name", () => {
  assert.equal(findKey(layout(tree(["total 0 0", "a 1 5"])), nodeKey(l, 3)), 1);
});

test("zoom follows the same names into a refreshed tree", () => {
  const next = layout(tree(["total 0 0", "new 1 7", "a 1 10", "b 2 30"]));
  assert.equal(followNames(next, namesTo(l, 2), false), 3);
  assert.equal(followNames(next, namesTo(l, 3), false), 3, "as far as it exists");
  assert.equal(followNames(next, namesTo(l, 3), true), -1);
});

test("negative own values do not make boxes", () => {
  assert.deepEqual([...layout(tree(["total 0 0", "a 1 -5", "b 1 5"])).total], [5, 0, 5]);
});

// Node has no ImageData; the raster needs only its pixels.
(globalThis as Record<string, unknown>).ImageData = class {
  data: Uint8ClampedArray;
  constructor(readonly width: number, readonly height: number) {
    this.data = new Uint8ClampedArray(width * height * 4);
  }
};

const FRAME: Frame = { width: 100, height: 40, rowHeight: 10, gap: 1, from: 0, to: 100, scroll: 0, flipped: false, contentHeight: 40, zoomLevel: 0 };

function paintOf(hueOf: number[], matched: Uint8Array | null, onlyHue = -1) {
  const matchesBeforeOf = matched ? matchesBefore(l, matched) : null;
  return { palette: palette(LIGHT), hueOf: Uint8Array.from(hueOf), hatched: 5, matched, matchesBefore: matchesBeforeOf, onlyHue };
}

test("pixels show each box in its hue, the gap between rows, and empty space", () => {
  const paint = paintOf([6, 0, 1, 0, 2], null);
  const pixels = new Uint32Array(new Raster().draw(l, FRAME, paint).data.buffer);
  const at = (x: number, y: number) => pixels[y * 100 + x]!;
  assert.equal(at(5, 3), paint.palette.fill[6 * 8]);
  assert.equal(at(5, 9), paint.palette.background, "row gap");
  assert.equal(at(30, 23), paint.palette.fill[1 * 8 + 7], "b has 30 %: hottest");
  assert.equal(at(70, 13), paint.palette.fill[2 * 8 + 7]);
  assert.equal(at(55, 23), paint.palette.background, "own value of a has no box below");
});

test("in flame direction the root is at the bottom", () => {
  const paint = paintOf([6, 0, 1, 0, 2], null);
  const pixels = new Uint32Array(new Raster().draw(l, { ...FRAME, flipped: true }, paint).data.buffer);
  assert.equal(pixels[35 * 100 + 5], paint.palette.fill[6 * 8]);
});

test("search lights matches and dims the rest; the legend dims other hues", () => {
  const paint = paintOf([6, 0, 1, 0, 2], maskNames(SMALL.names, (n) => n === "c"));
  const pixels = new Uint32Array(new Raster().draw(l, FRAME, paint).data.buffer);
  assert.equal(pixels[13 * 100 + 70], paint.palette.match);
  assert.equal(pixels[23 * 100 + 30], paint.palette.dim[1 * 8 + 7]);
  const only = paintOf([6, 0, 1, 0, 2], null, 2);
  const filtered = new Uint32Array(new Raster().draw(l, FRAME, only).data.buffer);
  assert.equal(filtered[13 * 100 + 70], only.palette.fill[2 * 8 + 7]);
  assert.equal(filtered[23 * 100 + 30], only.palette.dim[1 * 8 + 7]);
});

test("a match among boxes thinner than a pixel still lights its pixel", () => {
  const thin = layout(tree(["total 0 0", ...Array.from({ length: 1000 }, (_, i) => `${i === 505 ? "needle" : "hay"} 1 1`)]));
  const matched = maskNames(thin.columns.names, (n) => n === "needle");
  const paint = { ...paintOf(new Array(1001).fill(0), null), matched, matchesBefore: matchesBefore(thin, matched) };
  const pixels = new Uint32Array(new Raster().draw(thin, { ...FRAME, to: 1000 }, paint).data.buffer);
  const lit = Array.from(pixels.subarray(1300, 1400)).map((p, x) => (p === paint.palette.match ? x : -1)).filter((x) => x >= 0);
  assert.deepEqual(lit, [50]);
});
