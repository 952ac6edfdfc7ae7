import assert from "node:assert/strict";
import { test } from "node:test";
import { lineOf, niceStep, stepOf } from "../../src/model/series.ts";

/** Profiles of value 1 every `every` seconds, summed by the server in steps of `step` seconds. */
function profiles(every: number, step: number, until: number, from = 0) {
  const sums = new Map<number, number>();
  for (let t = from; t < until; t += every) {
    const at = Math.floor(t / step) * step * 1e3;
    sums.set(at, (sums.get(at) ?? 0) + 1);
  }
  return { unit: "nanoseconds", step_ms: step * 1e3, series: [{ labels: {}, points: [...sums] as [number, number][] }] };
}

test("steady profiles give a flat line, whatever their interval", () => {
  for (const every of [5, 10, 15, 30, 60]) {
    const line = lineOf(profiles(every, 10, 1800), 0, 1800e3);
    assert.ok(new Set(line.values).size === 1, `every ${every} s: ${line.values}`);
    assert.equal(line.values[0], line.stepMs / 1e3 / every);
  }
});

test("time before the first profile is 0 and the unfilled end is open", () => {
  const line = lineOf(profiles(10, 10, 605, 300), 0, 610e3);
  assert.equal(line.stepMs, 20e3);
  assert.equal(line.values[0], 0);
  assert.equal(line.values.at(15), 2);
  assert.equal(line.times.at(-1), 600e3, "the step at 600 s is not full yet");
});

test("a service that stopped long ago ends at 0, not open", () => {
  assert.equal(lineOf(profiles(10, 10, 600), 0, 3600e3).values.at(-1), 0);
});

test("nothing at all is a line of zeros", () => {
  const line = lineOf({ unit: "count", step_ms: 10e3, series: [] }, 0, 60e3);
  assert.deepEqual(line.values, [0, 0, 0, 0]);
});

test("steps are round", () => {
  assert.deepEqual([0.5, 10, 11, 25, 100, 1e6].map(niceStep), [1, 10, 20, 30, 120, 86400]);
});

test("a window is cut into round steps of at least a second", () => {
  assert.deepEqual([stepOf(0, 3600e3, 400), stepOf(5e3, 6e3, 400), stepOf(0, 3600e3, 60)], ["10s", "1s", "60s"]);
});
