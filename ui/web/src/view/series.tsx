import { useEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { Series } from "../model/api.ts";
import { formatValue } from "../model/format.ts";
import { lineOf } from "../model/series.ts";
import { clock, day, formatRange } from "../model/time.ts";

interface Props {
  series: Series | null;
  window: readonly [number, number] | null;
  dark: boolean;
  /** The values are CPU time: shown as cores in use. */
  cpu: boolean;
  onRange(fromMs: number, untilMs: number): void;
}

const HEIGHT = 84;

/** The total over time. Dragging over it chooses the time. */
export function SeriesChart({ series, window: range, dark, cpu: isCpu, onRange }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const choose = useRef(onRange);
  choose.current = onRange;
  const unit = series?.unit ?? "";
  const cpu = isCpu && unit === "nanoseconds";

  // The library is in the same file but runs only now: it costs some 25 ms that the first flame graph need not wait for.
  const [Plot, setPlot] = useState<typeof uPlot | null>(null);
  const wanted = series !== null;
  useEffect(() => {
    if (wanted) setTimeout(() => import("uplot").then((m) => setPlot(() => m.default)), 60);
  }, [wanted]);
  useEffect(() => {
    if (!Plot) return;
    const made = new Plot(options(Plot, host.current!, dark, sayOf(unit, cpu), (a, b) => choose.current(a, b)), [[], []], host.current!);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: host.current!.clientWidth, height: HEIGHT }));
    watch.observe(host.current!);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [dark, unit, cpu, Plot]);
  useEffect(() => {
    if (!plot.current || !series || !range) return;
    plot.current.setData(columns(series, range, cpu), false);
    plot.current.setScale("x", { min: range[0] / 1e3, max: range[1] / 1e3 });
  }, [series, range, dark, unit, cpu, Plot]);

  const sum = series?.series.reduce((n, s) => n + s.points.reduce((m, p) => m + p[1], 0), 0) ?? 0;
  const words = range && series
    ? `Total over time, ${formatRange(range[0], range[1], Date.now())}: ${formatValue(sum, unit)} in all. Drag to choose a time, or use the time menu.`
    : "Total over time";
  return <div class="series" ref={host} role="img" aria-label={words} data-testid="series" data-from={range?.[0]} data-until={range?.[1]} />;
}

function columns(series: Series, [from, until]: readonly [number, number], cpu: boolean): uPlot.AlignedData {
  const line = lineOf(series, from, until);
  const scale = cpu ? 1 / (line.stepMs * 1e6) : 1;
  return [line.times.map((t) => t / 1e3), line.values.map((v) => v * scale)];
}

/** CPU time over clock time is a number of cores; other values stand for themselves. */
function sayOf(unit: string, cpu: boolean): (v: number) => string {
  return cpu ? (v) => `${Number(v.toPrecision(3))} ${v === 1 ? "core" : "cores"}` : (v) => formatValue(v, unit);
}

function options(Plot: typeof uPlot, host: HTMLElement, dark: boolean, say: (v: number) => string, choose: (from: number, until: number) => void): uPlot.Options {
  const ink = dark ? "#9aa4b0" : "#57606a";
  const line = dark ? "#6cb2ff" : "#0b5cad";
  const grid = { stroke: dark ? "#232a33" : "#e8ebef", width: 1 };
  const font = '11px system-ui, "Liberation Sans", sans-serif';
  return {
    width: Math.max(50, host.clientWidth),
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 22, 0, 0],
    cursor: { drag: { x: true, y: false, setScale: false, dist: 4 }, points: { size: 6 }, y: false },
    scales: { x: { time: true }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1e-9] } },
    axes: [
      { stroke: ink, grid, ticks: { show: false }, size: 22, gap: 4, font, space: 90, values: clockTicks },
      { stroke: ink, grid, ticks: { show: false }, size: 68, gap: 6, font, space: 26, values: (_, at) => at.map((v) => (v === 0 ? "0" : v < 1e-9 ? "" : say(v))) },
    ],
    series: [{}, { stroke: line, width: 1.25, fill: dark ? "rgb(108 178 255 / 0.18)" : "rgb(11 92 173 / 0.14)", points: { show: false }, paths: Plot.paths.stepped!({ align: 1 }) }],
    hooks: {
      setSelect: [
        (u) => {
          if (u.select.width < 4) return;
          const [a, b] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          choose(Math.round(a * 1e3), Math.round(b * 1e3));
        },
      ],
    },
  };
}

function clockTicks(_: uPlot, at: number[], __: number, ___: number, step: number): string[] {
  return at.map((t) => (step < 86400 ? clock(t * 1e3, step < 60) : day(t * 1e3)));
}
