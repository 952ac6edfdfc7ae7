import type { Series } from "./api.ts";

/** Labels that tell a service's version, the first that a selection has is taken. */
export const VERSION_LABELS = ["version", "service_version", "service.version", "service_git_ref", "git_ref"] as const;

/** The moment from which a version was seen, and what ran before. */
export interface Deploy {
  readonly version: string;
  readonly before: string;
  readonly atMs: number;
}

/** Steps before a deploy that tell which version it took the place of. */
const JUST_BEFORE = 10;

/** Versions that were first seen inside the window; those of its first steps were there before. */
export function deploysOf(series: Series, label: string, fromMs: number): Deploy[] {
  const seen = series.series.flatMap(({ labels, points }) => {
    const first = points.find(([, value]) => value > 0)?.[0];
    const version = labels[label] ?? "";
    return first === undefined || version === "" ? [] : [{ version, points, first }];
  });
  seen.sort((a, b) => a.first - b.first);
  const out: Deploy[] = [];
  for (const { version, first } of seen) {
    if (first <= fromMs + 2 * series.step_ms) continue;
    const earlier = seen.filter((other) => other.first < first);
    const then = (of: (typeof seen)[number], from: number) => of.points.filter(([t, value]) => t >= from && t < first && value > 0);
    const cost = (of: (typeof seen)[number]) => then(of, first - JUST_BEFORE * series.step_ms).reduce((sum, [, value]) => sum + value, 0);
    // After a pause the one that was seen last.
    const last = (of: (typeof seen)[number]) => then(of, -Infinity).at(-1)?.[0] ?? 0;
    const before = most(earlier, cost) ?? most(earlier, last);
    if (before) out.push({ version, before: before.version, atMs: first });
  }
  return out;
}

function most<T>(all: readonly T[], weigh: (one: T) => number): T | undefined {
  let [best, weight]: [T | undefined, number] = [undefined, 0];
  for (const one of all) if (weigh(one) > weight) [best, weight] = [one, weigh(one)];
  return best;
}
