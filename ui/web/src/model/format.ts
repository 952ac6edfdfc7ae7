/** A value in its unit, three significant digits: `1.23 s`, `45.6 MiB`, `12.3 k`. */
export function formatValue(value: number, unit: string): string {
  if (unit === "nanoseconds") return scaled(value, TIME);
  if (unit === "microseconds") return scaled(value * 1e3, TIME);
  if (unit === "milliseconds") return scaled(value * 1e6, TIME);
  if (unit === "seconds") return scaled(value * 1e9, TIME);
  if (unit === "bytes") return scaled(value, BYTES);
  return scaled(value, COUNT).trim();
}

type Scale = readonly (readonly [number, string])[];
const TIME: Scale = [[86400e9, "d"], [3600e9, "h"], [60e9, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const BYTES: Scale = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
const COUNT: Scale = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

function scaled(value: number, scale: Scale): string {
  if (value === 0) return `0 ${scale === COUNT ? "" : scale[scale.length === 7 ? 3 : 4]![1]}`.trim();
  const size = Math.abs(value);
  // What rounds up to the next unit is written in it: never `1000 ms`.
  const rounds = ([f]: Scale[number], i: number) => size >= f || (i + 1 < scale.length && Number(digits(size / scale[i + 1]![0])) * scale[i + 1]![0] >= f);
  const [factor, suffix] = scale.find(rounds) ?? scale[scale.length - 1]!;
  return `${digits(value / factor)} ${suffix}`;
}

function digits(x: number): string {
  const size = Math.abs(x);
  return x.toFixed(size >= 99.95 || Number.isInteger(x) ? 0 : size >= 9.995 ? 1 : 2);
}

/** A share of a whole as percent, with as many digits as carry meaning. */
export function formatPercent(part: number, whole: number): string {
  if (!(whole > 0)) return "0 %";
  const p = (100 * part) / whole;
  if (p === 0) return "0 %";
  if (p < 0.01) return "<0.01 %";
  return `${p >= 99.95 ? p.toFixed(0) : p >= 10 ? p.toFixed(1) : p.toFixed(2)} %`;
}

export function formatCount(n: number): string {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** Name of a unit's quantity for headings. */
export function unitWord(unit: string): string {
  return { nanoseconds: "time", bytes: "bytes", count: "count" }[unit] ?? unit;
}
