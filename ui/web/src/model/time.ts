/** Time ranges that are one click away: [seconds, words]. */
export const PRESETS: readonly (readonly [string, string])[] = [
  ["now-5m", "Last 5 minutes"],
  ["now-15m", "Last 15 minutes"],
  ["now-1h", "Last hour"],
  ["now-6h", "Last 6 hours"],
  ["now-24h", "Last 24 hours"],
  ["now-7d", "Last 7 days"],
];

/** The shortest preset that is at least as long as a span; the default hour for an unreadable one. */
export function nearestPreset(spanMs: number): string {
  if (Number.isNaN(spanMs)) return "now-1h";
  const fits = PRESETS.find(([from]) => -parseTime(from, 0) >= spanMs * 0.99);
  return (fits ?? PRESETS[PRESETS.length - 1]!)[0];
}

const UNIT_MS: Record<string, number> = { s: 1e3, m: 60e3, h: 3600e3, d: 86400e3, w: 7 * 86400e3 };

/** A point of time in the API's words as Unix milliseconds, or NaN. */
export function parseTime(text: string, nowMs: number): number {
  const t = text.trim();
  if (t === "now") return nowMs;
  const relative = /^now-(\d+(?:\.\d+)?)([smhdw])$/.exec(t);
  if (relative) return nowMs - Number(relative[1]) * UNIT_MS[relative[2]!]!;
  if (/^\d+(\.\d+)?$/.test(t)) return byMagnitude(Number(t));
  return Date.parse(t);
}

/** Unix seconds, milliseconds, microseconds or nanoseconds, told apart by size. */
function byMagnitude(n: number): number {
  if (n < 1e11) return n * 1e3;
  if (n < 1e14) return n;
  return n < 1e17 ? n / 1e3 : n / 1e6;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const two = (n: number) => String(n).padStart(2, "0");

/** `14:03:10`, local time. By hand: the browser's formatters cost milliseconds to make. */
export function clock(ms: number, seconds: boolean): string {
  const t = new Date(ms);
  return `${two(t.getHours())}:${two(t.getMinutes())}${seconds ? `:${two(t.getSeconds())}` : ""}`;
}

/** `29 Nov`, local time. */
export function day(ms: number): string {
  const t = new Date(ms);
  return `${t.getDate()} ${MONTHS[t.getMonth()]}`;
}

/** `12:03:10 – 12:05:00`, with days where they differ or are not today. */
export function formatRange(fromMs: number, untilMs: number, nowMs: number): string {
  if (Number.isNaN(fromMs) || Number.isNaN(untilMs)) return "unreadable time";
  const [a, b, today] = [day(fromMs), day(untilMs), day(nowMs)];
  const head = a === b && a === today ? "" : `${a} `;
  return `${head}${clock(fromMs, true)} – ${a === b ? "" : `${b} `}${clock(untilMs, true)}`;
}

/** `1 h 5 min`, `42 s`: two parts at most. */
export function formatSpan(ms: number): string {
  let left = Math.max(0, Math.round(ms / 1e3));
  const parts: string[] = [];
  for (const [size, word] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]] as const) {
    const n = Math.floor(left / size);
    left -= n * size;
    if (n > 0 && parts.length < 2) parts.push(`${n} ${word}`);
  }
  return parts.join(" ") || "0 s";
}
