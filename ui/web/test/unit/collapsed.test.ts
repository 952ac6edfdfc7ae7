import assert from "node:assert/strict";
import { test } from "node:test";
import { collapsed } from "../../src/model/collapsed.ts";
import { tree } from "./fixtures.ts";

test("a line a stack with own value, and nothing in a name breaks a line", () => {
  const t = tree(["total 0 3", "main 1 1", "a;b 2 0", "c 3 30", "d 2 4"]);
  assert.equal(collapsed(t, null), "(no stack) 3\nmain 1\nmain;a:b;c 30\nmain;d 4\n");
  assert.equal(collapsed({ ...t, names: ["total", "ma\r\nin", "a", "c", "d"] }, null).split("\n")[1], "ma  in 1");
});

test("a comparison has both sides, the base first", () => {
  const t = tree(["total 0 0", "main 1 5", "new 2 7", "old 2 0"]);
  assert.equal(collapsed(t, Float64Array.of(0, 6, 0, 8)), "main 6 5\nmain;new 0 7\nmain;old 8 0\n");
});
