import assert from "node:assert/strict";
import { test } from "node:test";
import { invertTree } from "../../src/model/invert.ts";
import { lines, whole } from "./fixtures.ts";

test("what costs by itself comes first, with its callers below", () => {
  const t = whole(["total 0 3", "main 1 1", "f 2 5", "g 3 7", "thread 1 0", "g 2 2"]);
  assert.deepEqual(lines(invertTree(t).tree.columns), ["total 0 3", "main 1 1", "f 1 0", "main 2 5", "g 1 0", "f 2 0", "main 3 7", "thread 2 2"]);
});

test("turned over twice it is the tree again, but for frames that cost nothing at all", () => {
  const t = whole(["total 0 0", "main 1 1", "f 2 5", "f 3 7", "g 3 2", "f 1 4"]);
  assert.deepEqual(lines(invertTree(invertTree(t).tree).tree.columns).sort(), lines(t.columns).sort());
});

test("both sides of a comparison are turned over", () => {
  const { tree } = invertTree(whole(["total 0 0", "main 1 0", "new 2 5", "old 2 0"], [0, 0, 0, 6]));
  assert.deepEqual([lines(tree.columns), [...tree.base!]], [["total 0 0", "new 1 0", "main 2 5", "old 1 0", "main 2 0"], [0, 0, 0, 0, 6]]);
});
