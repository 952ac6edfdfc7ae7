import assert from "node:assert/strict";
import { test } from "node:test";
import type { Columns } from "../../src/flame/index.ts";
import { foldTree, parseFold, toggleFold } from "../../src/model/fold.ts";
import { Model } from "../../src/model/model.ts";
import type { Tree } from "../../src/model/pltr.ts";
import { lines, whole } from "./fixtures.ts";

const without = (t: Tree, ...names: string[]) => foldTree(t, Uint8Array.from(t.columns.name, (id) => (names.includes(t.columns.names[id]!) ? 1 : 0)));

test("a folded frame's cost is its caller's, and its callees stand below the caller", () => {
  const folded = without(whole(["total 0 0", "main 1 1", "std::run 2 10", "work 3 30", "std::drop 4 5", "idle 1 4"]), "std::run", "std::drop");
  assert.deepEqual(lines(folded.tree.columns), ["total 0 0", "main 1 11", "work 2 35", "idle 1 4"]);
  assert.deepEqual([...folded.first], [0, 1, 3, 5]);
});

test("siblings of one name become one, with the callees of both, and subtrees stay whole", () => {
  const t = whole(["total 0 1", "a 1 2", "x 2 3", "b 3 4", "c 3 5", "y 2 6", "b 3 7", "d 4 8", "e 1 9"]);
  assert.deepEqual(lines(without(t, "x", "y").tree.columns), ["total 0 1", "a 1 11", "b 2 11", "d 3 8", "c 2 5", "e 1 9"]);
});

test("what has no caller left is the root's, and the root itself stays", () => {
  const t = whole(["total 0 1", "a 1 2", "b 2 3", "a 1 4"]);
  assert.deepEqual(lines(without(t, "total", "a", "b").tree.columns), ["total 0 10"]);
});

test("both sides of a comparison are folded alike", () => {
  const folded = without(whole(["total 0 0", "main 1 1", "std::run 2 10", "work 3 30"], [0, 2, 20, 60]), "std::run");
  assert.deepEqual([[...folded.tree.columns.self], [...folded.tree.base!]], [[0, 11, 30], [0, 22, 60]]);
});

test("any choice of frames keeps the sum, the order and the callers of a large tree", () => {
  let seed = 7;
  const next = (below: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
  for (let round = 0; round < 50; round++) {
    const rows = ["total 0 1"];
    for (let i = 0, depth = 0; i < 400; i++) rows.push(`f${next(9)} ${(depth = 1 + next(depth + 1))} ${next(5)}`);
    const t = whole(rows);
    const folded = without(t, "f1", "f4", "f7").tree.columns;
    const sum = (c: Columns) => c.self.reduce((a, b) => a + b, 0);
    assert.equal(sum(folded), sum(t.columns));
    // Value by the stack of names that stay, by hand and by folding.
    assert.deepEqual(byStack(folded, new Set()), byStack(t.columns, new Set(["f1", "f4", "f7"])));
    folded.depth.forEach((d, i) => assert.ok(i === 0 ? d === 0 : d >= 1 && d <= folded.depth[i - 1]! + 1));
  }
});

function byStack({ names, name, depth, self }: Columns, left: Set<string>): Map<string, number> {
  const out = new Map<string, number>();
  const stack: string[] = [];
  name.forEach((id, i) => {
    stack.length = depth[i]!;
    stack.push(names[id]!);
    const key = stack.filter((n) => !left.has(n)).join(";");
    out.set(key, (out.get(key) ?? 0) + self[i]!);
  });
  // A stack that is only passed through has no value of its own on either side.
  return new Map([...out].filter(([, value]) => value > 0).sort());
}

test("a model folds by origin, keeps its total and its legend, and unfolds", () => {
  const t = whole(["total 0 0", "shop::main 1 1", "tokio::run 2 10", "shop::work 3 30", "core::iter::next 4 5", "[stacks left out by a sampling rule] 1 4"]);
  const model = Model.of(t, ["shop"], new Map());
  const folded = model.folded(parseFold("runtime,libc"));
  assert.deepEqual(lines(folded.layout.columns), ["total 0 0", "shop::main 1 11", "shop::work 2 35", "[stacks left out by a sampling rule] 1 4"]);
  assert.deepEqual([folded.total, folded.sampledOut, folded.originShares()], [50, 4, model.originShares()]);
  assert.ok(folded.has("runtime") && !folded.has("kernel"));
  assert.equal(model.folded(parseFold("")), model);
});

test("a link names what is folded, and only what may be", () => {
  assert.deepEqual([...parseFold("runtime,app,nonsense,kernel")], [2, 4]);
  assert.equal(toggleFold("", "runtime"), "runtime");
  assert.equal(toggleFold("runtime", "dependency"), "dependency,runtime");
  assert.equal(toggleFold("dependency,runtime", "runtime"), "dependency");
});
