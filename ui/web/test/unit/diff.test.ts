import assert from "node:assert/strict";
import { test } from "node:test";
import { layout } from "../../src/flame/index.ts";
import { bothSides, Diff, formatChange, orderDiff, SAME, score } from "../../src/model/diff.ts";
import type { Tree } from "../../src/model/pltr.ts";
import { readView, isDiff, writeView } from "../../src/model/view.ts";
import { tree } from "./fixtures.ts";

/** a 48 % → 60 %, gone 20 % → 0 %, b 32 % → 40 %; `events` counted on each side. */
function sides(events: number): Tree {
  const columns = tree([" 0 0", "a 1 60", "gone 1 0", "b 1 40"]);
  const meta = { type: "", unit: "count", from_ms: 0, until_ms: 0, total: 100, profiles: 1, samples: events, partial: false, problems: [], unknown: 0, truncated: 0, cut_nodes: 0, cut_value: 0, events, base_events: events };
  return { meta, columns, base: Float64Array.from([0, 480, 200, 320]) };
}
const make = (t: Tree) => new Diff(t, layout(bothSides(t)));

test("shares of both sides are compared, not values", () => {
  const diff = make(sides(10_000));
  const gone = diff.ofName(2);
  assert.deepEqual([gone.base, gone.now, gone.by], [0.2, 0, -0.2]);
  assert.equal(formatChange(gone), "20.0 % → 0 % (−20)");
  assert.equal(formatChange(diff.ofName(1)), "48.0 % → 60.0 % (+12)");
});

test("what is gone keeps a box as wide as the mean of both shares", () => {
  const l = layout(bothSides(sides(100)));
  assert.deepEqual([...l.total].map((v) => Math.round(v)), [100, 54, 10, 36]);
});

test("a change that chance may make is grey and stands behind the real ones", () => {
  const few = make(sides(20));
  assert.deepEqual([...few.hueOfNode], [SAME, SAME, SAME, SAME], "twelve points of 20 events are nothing");
  const many = make(sides(10_000));
  assert.deepEqual([...many.hueOfNode], [SAME, 6, 0, 6]);
  const names = sides(1).columns.names;
  assert.deepEqual([...orderDiff(many, names, 0, "change", false, null, true)].map((id) => names[id]), ["gone", "a", "b"]);
  assert.equal(orderDiff(few, names, 0, "change", false, null, true).length, 0);
});

test("the score is that of the server", () => {
  // Pooled 0.15 of 1000 + 1000: √(0.15·0.85·0.002) = 0.015968.
  assert.ok(Math.abs(score(0.2, 0.1, [1000, 1000]) - 6.2622) < 1e-4);
  assert.equal(score(0.2, 0.1, [0, 10]), 0);
});

test("a comparison is in the link", () => {
  const view = readView('?q={version="2"}&base_q={version="1"}');
  assert.ok(isDiff(view));
  assert.equal(readView(writeView(view)).base_q, '{version="1"}');
  assert.ok(!isDiff(readView("")));
});
