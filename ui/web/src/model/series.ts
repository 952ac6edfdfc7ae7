import type { Series } from "./api.ts";

/** A line of steps to draw: each value holds from its time (Unix milliseconds) to the next; the last one closes the line. */
export interface Line {
  readonly times: number[];
  readonly values: number[];
  /** Milliseconds that one value stands for. */
  readonly stepMs: number;
}

const NICE_SECONDS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** The shortest round step, in seconds, that is no shorter than `seconds`. */
export function niceStep(seconds: number): number {
  return NICE_SECONDS.find((s) => s >= seconds * 0.999) ?? 86400;
}

/** Steps of a line as wide as the page. */
export const CHART_STEPS = 400;

/** The round step, as the API is asked for it, that cuts a window into `steps` at most. */
export function stepOf(fromMs: number, untilMs: number, steps: number): string {
  return `${niceStep(Math.max(1, (untilMs - fromMs) / 1e3 / steps))}s`;
}

/**
 * Sums all series into one line. A profile counts wholly at its start, so steps near the time between
 * profiles would show a comb: steps of twice that time hold the same number of profiles each.
 * Steps that the newest profiles have not filled yet are left open.
 */
export function lineOf(series: Series, fromMs: number, untilMs: number): Line {
  const sums = new Map<number, number>();
  for (const s of series.series) for (const [t, v] of s.points) if (v !== 0) sums.set(t, (sums.get(t) ?? 0) + v);
  const points = [...sums.entries()].sort((a, b) => a[0] - b[0]);
  const spacing = Math.max(series.step_ms, typicalSpacing(points.map(([t]) => t)));
  const stepMs = niceStep((2 * spacing) / 1e3) * 1e3;
  const first = Math.floor(fromMs / stepMs) * stepMs;
  const count = Math.max(1, Math.ceil((untilMs - first) / stepMs));
  const values = new Array<number>(count).fill(0);
  for (const [t, v] of points) {
    const at = Math.floor((t - first) / stepMs);
    if (at >= 0 && at < count) values[at]! += v;
  }
  const known = (points[points.length - 1]?.[0] ?? untilMs) + spacing;
  // Behind the newest profile the line ends, unless that is so long ago that it has fallen to 0.
  const fresh = untilMs - known < 4 * stepMs;
  const shown = fresh ? Math.max(1, Math.min(count, Math.floor((known - first) / stepMs))) : count;
  const times = Array.from({ length: shown + 1 }, (_, i) => first + i * stepMs);
  return { times, values: [...values.slice(0, shown), values[shown - 1]!], stepMs };
}

/** Median distance of successive times; 0 with fewer than two. */
function typicalSpacing(times: readonly number[]): number {
  const gaps = times.slice(1).map((t, i) => t - times[i]!).sort((a, b) => a - b);
  if (gaps.length === 0) return 0;
  // Jitter against the server's steps makes gaps of one step and of two: their mean is the truth.
  const usual = gaps.filter((g) => g <= 3 * gaps[gaps.length >> 1]!);
  return usual.reduce((a, b) => a + b, 0) / usual.length;
}
