import assert from "node:assert/strict";
import { test } from "node:test";
import { withValue } from "../../src/model/selector.ts";
import { sparkPath, splitRows } from "../../src/model/split.ts";

const at = (value: string | null, points: [number, number][]) => ({ labels: (value === null ? {} : { pod: value }) as Record<string, string>, points });

test("values come by their cost, and what lacks the label is one of them", () => {
  const series = { unit: "nanoseconds", step_ms: 1000, series: [at("a", [[0, 1], [1000, 2]]), at(null, [[0, 4]]), at("b", [[0, 3]]), at("idle", [])] };
  const rows = splitRows(series, "pod", 0, 4000);
  assert.deepEqual(rows.map((row) => [row.value, row.sum]), [["", 4], ["a", 3], ["b", 3]]);
});

test("a spark fills its box from the first step to the last", () => {
  const line = { times: [0, 10, 20], values: [1, 2, 2], stepMs: 10 };
  assert.equal(sparkPath(line, 0, 20, 100, 10), "M0.0 10V5.0H50.0V0.0H100.0V10Z");
  assert.equal(sparkPath({ ...line, values: [0, 0, 0] }, 0, 20, 100, 10), "");
});

test("a chosen value takes the place of what was asked of its label", () => {
  assert.equal(withValue('{pod=~"a.*",service_name="s"}', "pod", 'a"1'), '{service_name="s",pod="a\\"1"}');
  assert.equal(withValue("{broken", "pod", ""), '{pod=""}');
});
