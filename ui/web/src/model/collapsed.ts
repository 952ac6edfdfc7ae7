import type { Columns } from "../flame/index.ts";

/**
 * Collapsed stacks, `main;parse;next 42` a line, as flamegraph.pl, inferno and speedscope read them; with a base
 * `main;parse;next BASE NOW`, as difffolded.pl writes it. What would break a line is replaced as the server does.
 */
export function collapsed({ names, depth, name, self }: Columns, base: Float64Array | null): string {
  const lines: string[] = [];
  const path: string[] = [];
  for (let i = 0; i < depth.length; i++) {
    const d = depth[i]!;
    path.length = Math.max(0, d - 1);
    if (d > 0) path.push(names[name[i]!]!.replace(/;/g, ":").replace(/[\r\n]/g, " "));
    const values = base ? [base[i]!, self[i]!] : [self[i]!];
    if (values.some((value) => value > 0)) lines.push(`${d === 0 ? "(no stack)" : path.join(";")} ${values.map((value) => Math.max(0, Math.round(value))).join(" ")}\n`);
  }
  return lines.join("");
}
