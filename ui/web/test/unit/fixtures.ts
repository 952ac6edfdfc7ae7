import type { Columns } from "../../src/flame/index.ts";
import type { Meta, Tree } from "../../src/model/pltr.ts";

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

const META: Meta = {
  type: "cpu", unit: "nanoseconds", from_ms: 0, until_ms: 1, total: 0, profiles: 1, samples: 1, partial: false, problems: [],
  unknown: 0, truncated: 0, cut_nodes: 0, cut_value: 0,
};

/** A tree as the server sends it, with the own values of a base where it is a diff. */
export function whole(rows: readonly string[], base: readonly number[] | null = null): Tree {
  return { meta: META, columns: tree(rows), base: base && Float64Array.from(base) };
}

/** What `tree` reads. */
export function lines({ names, name, depth, self }: Columns): string[] {
  return Array.from(name, (id, i) => `${names[id]} ${depth[i]} ${self[i]}`);
}
