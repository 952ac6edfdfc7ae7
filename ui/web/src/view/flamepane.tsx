import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { FlameGraph, childEntries, findKey, maskNames, nodeKey, type Direction, type Theme } from "../flame/index.ts";
import { verdict } from "../model/diff.ts";
import type { Model } from "../model/model.ts";
import type { Pattern } from "../model/search.ts";
import { Tooltip } from "./tooltip.ts";

interface Props {
  model: Model;
  theme: Theme;
  direction: Direction;
  zoom: string;
  pattern: Pattern | null;
  onlyHue: number;
  onZoom(key: string): void;
  onSelect(name: string): void;
}

/** The canvas flame graph inside the page: feeds it and tells what it says. */
export function FlamePane(props: Props) {
  const host = useRef<HTMLDivElement>(null);
  const pane = useRef<HTMLDivElement>(null);
  const graph = useRef<FlameGraph | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const [spoken, setSpoken] = useState("");

  useLayoutEffect(() => {
    const tooltip = new Tooltip(pane.current!);
    const g = new FlameGraph(host.current!, {
      theme: props.theme,
      direction: props.direction,
      spellings: (name) => latest.current.model.spellings(name),
      detail: (node) => latest.current.model.detail(node),
      reducedMotion: matchMedia("(prefers-reduced-motion: reduce)").matches,
      events: {
        hover: (node, x, y) => (node < 0 ? tooltip.hide() : tooltip.show(latest.current.model, node, g.zoomNode, x, y)),
        zoom: (node) => latest.current.onZoom(nodeKey(latest.current.model.layout, node)),
        focus: (node) => setSpoken(describe(latest.current.model, node)),
        select: (node) => latest.current.onSelect(latest.current.model.layout.columns.names[latest.current.model.nameOf(node)]!),
        drawn: () => performance.mark("flame-drawn"),
      },
    });
    graph.current = g;
    Object.assign(host.current!, { flameGraph: g });
    return () => g.destroy();
  }, []);

  useLayoutEffect(() => {
    graph.current!.setTree(props.model.layout, props.model.hueOfNode);
    applyMatch(graph.current!, props);
    const want = findKey(props.model.layout, props.zoom);
    if (want !== graph.current!.zoomNode) graph.current!.zoomTo(want, false);
  }, [props.model]);
  useLayoutEffect(() => graph.current!.setTheme(props.theme), [props.theme]);
  useLayoutEffect(() => graph.current!.setDirection(props.direction), [props.direction]);
  useEffect(() => {
    applyMatch(graph.current!, props);
    graph.current!.revealMatch();
  }, [props.pattern]);
  useEffect(() => graph.current!.setOnlyHue(props.onlyHue), [props.onlyHue]);
  useEffect(() => {
    const node = findKey(props.model.layout, props.zoom);
    if (node !== graph.current!.zoomNode) graph.current!.zoomTo(node);
  }, [props.zoom]);

  return (
    <div class="flame-pane" ref={pane}>
      <div
        class="flame"
        ref={host}
        tabIndex={0}
        role="application"
        aria-roledescription="flame graph"
        aria-label={`Flame graph of ${props.model.layout.count - 1} frames. Arrow keys walk, Enter zooms, 0 resets, slash searches. The Tree view holds the same as a table.`}
        data-nodes={props.model.layout.count}
        data-zoom={props.zoom}
        data-direction={props.direction}
      />
      <div class="visually-hidden" aria-live="polite" data-testid="spoken">{spoken}</div>
    </div>
  );
}

function applyMatch(graph: FlameGraph, { pattern, model }: Props): void {
  if (!pattern) return graph.setMatch(null);
  const mask = maskNames(model.layout.columns.names, pattern.test);
  mask[model.rootName] = 0;
  graph.setMatch(mask);
}

function describe(model: Model, node: number): string {
  const { layout } = model;
  const [from, to] = childEntries(layout, node);
  if (model.diff) return `${model.shortName(model.nameOf(node))}, base and now ${model.detail(node)}, ${verdict(model.diff.ofNode(node))}, depth ${layout.columns.depth[node]}`;
  const self = Math.max(0, layout.columns.self[node]!);
  const below = to - from === 1 ? "1 callee" : `${to - from} callees`;
  return `${model.shortName(model.nameOf(node))}, ${model.percent(layout.total[node]!)} total, ${model.percent(self)} self, depth ${layout.columns.depth[node]}, ${below}`;
}
