import type { Series } from "./api.ts";
import { lineOf, type Line } from "./series.ts";

/** One value of a label: what it cost in all, and over time. */
export interface SplitRow {
  /** Empty for what lacks the label. */
  readonly value: string;
  readonly sum: number;
  readonly line: Line;
}

/** The values of the label `by`, the most expensive first. */
export function splitRows(series: Series, by: string, fromMs: number, untilMs: number): SplitRow[] {
  const rows = series.series.map((one) => ({
    value: one.labels[by] ?? "",
    sum: one.points.reduce((sum, [, v]) => sum + v, 0),
    line: lineOf({ ...series, series: [one] }, fromMs, untilMs),
  }));
  return rows.filter((row) => row.sum !== 0).sort((a, b) => b.sum - a.sum || (a.value < b.value ? -1 : 1));
}

/** A line as an SVG path in a box of `width` × `height`, the highest value at the top. */
export function sparkPath(line: Line, fromMs: number, untilMs: number, width: number, height: number): string {
  const most = Math.max(...line.values, 0);
  if (most <= 0 || untilMs <= fromMs) return "";
  const x = (t: number) => Math.min(width, Math.max(0, ((t - fromMs) / (untilMs - fromMs)) * width)).toFixed(1);
  const y = (v: number) => (height * (1 - v / most)).toFixed(1);
  let path = `M${x(line.times[0]!)} ${height}`;
  for (let i = 0; i + 1 < line.times.length; i++) path += `V${y(line.values[i]!)}H${x(line.times[i + 1]!)}`;
  return `${path}V${height}Z`;
}
