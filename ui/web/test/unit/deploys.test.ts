import assert from "node:assert/strict";
import { test } from "node:test";
import { deploysOf } from "../../src/model/deploys.ts";

const series = (...of: [string, [number, number][]][]) => ({
  unit: "nanoseconds", step_ms: 10, series: of.map(([version, points]) => ({ labels: (version === "" ? {} : { version }) as Record<string, string>, points })),
});

test("a version that comes inside the window is a deploy, and says what it took the place of", () => {
  const s = series(["2", [[300, 5], [310, 5]]], ["1", [[0, 9], [10, 9], [290, 9]]], ["3", [[500, 1]]], ["", [[100, 4]]]);
  assert.deepEqual(deploysOf(s, "version", 0), [{ version: "2", before: "1", atMs: 300 }, { version: "3", before: "2", atMs: 500 }]);
});

test("what ran from the first steps on was there before, and steps without value are none", () => {
  const s = series(["1", [[0, 9]]], ["2", [[20, 9]]], ["3", [[0, 0], [400, 2]]], ["idle", []]);
  assert.deepEqual(deploysOf(s, "version", 0), [{ version: "3", before: "2", atMs: 400 }]);
  assert.deepEqual(deploysOf(series(["1", [[700, 1]]]), "version", 0), [], "the first data of all");
});

test("among several the one that cost the most just before counts", () => {
  const s = series(["old", [[0, 100], [400, 1]]], ["usual", [[0, 5], [400, 5], [490, 5]]], ["new", [[500, 5]]]);
  assert.deepEqual(deploysOf(s, "version", 0), [{ version: "new", before: "usual", atMs: 500 }]);
});
