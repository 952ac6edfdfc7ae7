import assert from "node:assert/strict";
import { test } from "node:test";
import { layout, type Columns } from "../../src/flame/index.ts";
import { Model } from "../../src/model/model.ts";
import { sandwichOf } from "../../src/model/sandwich.ts";
import { lines, whole } from "./fixtures.ts";

const of = (t: ReturnType<typeof whole>, name: string) => sandwichOf(t, t.columns.names.indexOf(name), layout(t.columns).total, null);

test("a function stands between its callers, upside down, and its callees", () => {
  const t = whole(["total 0 0", "main 1 1", "a 2 0", "f 3 5", "x 4 7", "b 2 2", "f 3 3", "x 4 1", "y 4 4", "thread 1 0", "a 2 0", "f 3 6"]);
  const { callers, callees } = of(t, "f");
  assert.deepEqual(lines(callers.tree.columns), ["f 0 0", "a 1 0", "main 2 12", "thread 2 6", "b 1 0", "main 2 8"]);
  assert.deepEqual(lines(callees.tree.columns), ["f 0 14", "x 1 8", "y 1 4"]);
});

test("inside a recursion the outermost counts, and the inner stays among the callees", () => {
  const t = whole(["total 0 0", "f 1 1", "g 2 2", "f 3 4", "h 4 8"]);
  const { callers, callees } = of(t, "f");
  assert.deepEqual(lines(callers.tree.columns), ["f 0 15"]);
  assert.deepEqual(lines(callees.tree.columns), ["f 0 1", "g 1 2", "f 2 4", "h 3 8"]);
  assert.deepEqual(lines(of(t, "h").callers.tree.columns), ["h 0 0", "f 1 0", "g 2 0", "f 3 8"]);
});

test("both sides sum to the function's total in the table, for every function of a large tree", () => {
  let seed = 3;
  const next = (below: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
  const rows = ["total 0 1"];
  for (let i = 0, depth = 0; i < 2000; i++) rows.push(`f${next(9)} ${(depth = 1 + next(Math.min(depth + 1, 30)))} ${next(5)}`);
  const model = Model.of(whole(rows), [], new Map());
  const sum = (c: Columns) => c.self.reduce((a, b) => a + b, 0);
  for (let f = 0; f < 9; f++) {
    const id = model.layout.columns.names.indexOf(`f${f}`);
    const { callers, callees } = model.sandwich(id);
    assert.deepEqual([callers.total, callees.total], [model.top.total[id], model.top.total[id]]);
    assert.equal(sum(callers.layout.columns), model.top.total[id]);
  }
});

test("shares are those of the whole, and origins stay with the frames", () => {
  const model = Model.of(whole(["total 0 0", "shop::main 1 60", "tokio::run 2 0", "shop::work 3 40"]), ["shop"], new Map());
  const { callers } = model.sandwich(model.layout.columns.names.indexOf("shop::work"));
  assert.equal(callers.detail(1), "40.0 % · 40 ns");
  assert.deepEqual([...callers.hueOfNode].slice(1), [2, 0], "runtime, app");
});

test("both sides of a comparison keep their own values and shares", () => {
  const t = whole(["total 0 0", "main 1 50", "f 2 50", "x 3 0"], [0, 80, 10, 10]);
  const model = Model.of({ ...t, meta: { ...t.meta, events: 1000, base_events: 1000 } }, [], new Map());
  const { callers, callees } = model.sandwich(model.layout.columns.names.indexOf("f"));
  const { now, base, real } = callers.diff!.ofNode(1);
  assert.deepEqual([now, base, real], [0.5, 0.2, true]);
  assert.deepEqual([[...callees.diff!.now], [...callees.diff!.base]], [[50, 0], [20, 10]]);
});
