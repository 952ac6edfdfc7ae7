import type { Columns } from "../../src/flame/index.ts";

/** Columns from lines like `"main 0 2"`: name, depth, own value. */
export function tree(lines: readonly string[]): Columns {
  const names: string[] = [];
  const rows = lines.map((line) => {
    const [, name, depth, self] = /^(.*) (\d+) (-?\d+)$/.exec(line)!;
    if (!names.includes(name!)) names.push(name!);
    return [names.indexOf(name!), Number(depth), Number(self)] as const;
  });
  return {
    names,
    name: Uint32Array.from(rows, (r) => r[0]),
    depth: Uint16Array.from(rows, (r) => r[1]),
    self: Float64Array.from(rows, (r) => r[2]),
  };
}

/** total 100: a(10) > b(30) > a(20); c(40). `a` is under itself. */
export const SMALL = tree(["total 0 0", "a 1 10", "b 2 30", "a 3 20", "c 1 40"]);
