import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { findKey, matchedValue, maskNames, nodeKey, pathTo, type Theme } from "../flame/index.ts";
import { formatCount } from "../model/format.ts";
import { parseFold } from "../model/fold.ts";
import type { Model } from "../model/model.ts";
import { tail } from "../model/names.ts";
import { ORIGINS, type Origin } from "../model/origin.ts";
import { compile, exactly, type Pattern } from "../model/search.ts";
import { parseSort } from "../model/top.ts";
import { isLive, VIEW_KINDS, type View, type ViewKind } from "../model/view.ts";
import { CompareBar, CompareButton } from "./compare.tsx";
import { Deploys } from "./deploys.tsx";
import { DiffLegend, DiffTable } from "./difftable.tsx";
import { FoldBar } from "./fold.tsx";
import { FlamePane } from "./flamepane.tsx";
import { Help } from "./help.tsx";
import { Legend } from "./legend.tsx";
import { EmptyState, ErrorNote } from "./notes.tsx";
import { SandwichPanes } from "./sandwich.tsx";
import { SaveMenu } from "./save.tsx";
import { SeriesChart } from "./series.tsx";
import { Split } from "./split.tsx";
import { useLoaded, useView, type Change } from "./state.ts";
import { StatusBar } from "./status.tsx";
import { diffTheme, useTheme } from "./theme.ts";
import { Toolbar } from "./toolbar.tsx";
import { TopTable } from "./top.tsx";
import { CallTree } from "./tree.tsx";

export function App() {
  const [view, change] = useView();
  const [theme, themeChoice, setTheme] = useTheme();
  const [loaded, again] = useLoaded(view, change);
  const [help, setHelp] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  const { model, error } = loaded;
  const empty = !error && !loaded.loading && (model === null || model.total === 0);
  useTitle(view);
  useKeys(search, () => setHelp(true));
  document.documentElement.dataset.state = error ? "error" : empty ? "empty" : model ? "ready" : "loading";

  return (
    <>
      <Toolbar {...{ view, change }} types={loaded.types} theme={themeChoice} onTheme={setTheme} onHelp={() => setHelp(true)} />
      <div class="series-box">
        <SeriesChart series={loaded.series} window={loaded.window} dark={theme.dark} cpu={/(^|:)cpu(:nanoseconds|$)/.test(view.type)} onRange={(a, b) => change({ from: String(a), until: String(b) }, true)} />
        <Deploys {...{ view, change }} window={loaded.window} />
      </div>
      {error && <ErrorNote error={error} onAgain={again} change={change} />}
      <CompareBar {...{ view, change }} key={view.base_q} />
      {model && model.total > 0 ? (
        <Views {...{ model, view, change, search }} theme={model.diff ? diffTheme(theme) : theme} loading={loaded.loading} />
      ) : (
        <main class="blank">
          {empty && <EmptyState view={view} hasTypes={(loaded.types?.length ?? 0) > 0} change={change} />}
          {!empty && !error && <p class="loading" role="status">Loading the profile…</p>}
        </main>
      )}
      <Help isOpen={help} onClose={() => setHelp(false)} />
    </>
  );
}

function useTitle(view: View): void {
  const service = /service_name="([^"]+)"/.exec(view.q)?.[1];
  const what = view.type.split(":")[1] ?? "";
  document.title = [service, what, "pilotlight"].filter(Boolean).join(" · ");
}

/** Keys that work wherever no text is being typed. */
function useKeys(search: { current: HTMLInputElement | null }, onHelp: () => void): void {
  useEffect(() => {
    const onKey = (e: KeyboardEvent) => {
      const at = e.target as HTMLElement;
      if (at.closest("input, select, textarea, dialog") || e.ctrlKey || e.metaKey || e.altKey) return;
      if (e.key === "/") search.current?.focus();
      else if (e.key === "?") onHelp();
      else if (e.key === "0" || e.key === "Escape") document.querySelector<HTMLElement>(".crumb-reset")?.click();
      else return;
      e.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

interface ViewsProps {
  model: Model;
  view: View;
  theme: Theme;
  change: Change;
  search: { current: HTMLInputElement | null };
  loading: boolean;
}

function Views({ model: whole, view, theme, change, search, loading }: ViewsProps) {
  const model = useMemo(() => whole.folded(parseFold(view.fold)), [whole, view.fold]);
  // The tables stay: what a function costs by itself does not depend on the direction.
  const shown = useMemo(() => (view.invert === "" ? model : model.inverted()), [model, view.invert]);
  const pattern = useMemo(() => compile(view.search), [view.search]);
  const mask = useMemo(() => maskOf(model, pattern), [model, pattern]);
  const only = model.diff ? -1 : ORIGINS.indexOf(view.origin as Origin);
  const exact = /^\^(.*)\$$/s.exec(view.search)?.[1] ?? null;
  // A function is chosen in the table of a sandwich: there the others stay in sight.
  const filter = view.view === "sandwich" && exact !== null ? null : mask;
  const keep = useMemo(() => keepOf(model, filter, only), [model, filter, only]);
  const sort = useMemo(() => parseSort(view.sort), [view.sort]);
  const select = (name: string) => change({ search: view.search === exactly(name) ? "" : exactly(name) });
  const zoom = (key: string) => change({ zoom: key }, true);
  const showGraph = view.view === "both" || view.view === "icicle" || view.view === "flame";
  const beside = view.view === "both" || view.view === "sandwich";
  const selected = exact === null ? null : exact.replace(/\\(.)/g, "$1");
  const painted = useAfterPaint();
  const top = painted && (model.diff ? <DiffTable {...{ model, theme, selected }} keep={keep} onSelect={select} /> : <TopTable {...{ model, theme, sort, selected }} keep={keep} onSort={(s) => change({ sort: s })} onSelect={select} />);
  return (
    <>
      <div class="tools">
        <ViewPicker view={view} change={change} />
        <SearchBox {...{ model, view, change, pattern, mask }} input={search} />
        <CompareButton {...{ view, change }} />
        {(showGraph || view.view === "tree") && <InvertButton {...{ view, change }} />}
        {view.view !== "split" && <FoldBar model={model} fold={view.fold} onFold={(fold) => change({ fold }, true)} />}
        <SaveMenu model={model} view={view} />
      </div>
      {view.view !== "sandwich" && <Crumbs model={shown} zoom={view.zoom} onZoom={zoom} />}
      <main class={`views view-${view.view}`}>
        {beside && (top || <div class="table-host" />)}
        <div class="column">
          {model.diff ? <DiffLegend {...{ model, theme }} /> : <Legend model={model} theme={theme} only={view.origin} onOnly={(origin) => change({ origin }, true)} />}
          {view.view === "top" && top}
          {showGraph && <FlamePane {...{ theme, pattern }} model={shown} direction={view.dir} zoom={view.zoom} onlyHue={only} onZoom={zoom} onSelect={select} />}
          {view.view === "sandwich" && <SandwichPanes {...{ model, theme, selected }} onSelect={select} />}
          {view.view === "split" && <Split {...{ view, model, change }} />}
          {view.view === "tree" && <CallTree theme={theme} model={shown} zoom={view.zoom} matched={mask} onZoom={zoom} />}
        </div>
      </main>
      <StatusBar model={model} view={view} live={isLive(view)} loading={loading} />
    </>
  );
}

/** False until the first picture is out: what takes its time waits for it. */
function useAfterPaint(): boolean {
  const [painted, setPainted] = useState(false);
  useEffect(() => {
    requestAnimationFrame(() => requestAnimationFrame(() => setPainted(true)));
  }, []);
  return painted;
}

function maskOf(model: Model, pattern: Pattern | null): Uint8Array | null {
  if (!pattern) return null;
  const mask = maskNames(model.layout.columns.names, pattern.test);
  mask[model.rootName] = 0;
  return mask;
}

/** Names that pass both the search and the legend's filter, or null for all. */
function keepOf(model: Model, mask: Uint8Array | null, only: number): Uint8Array | null {
  if (only < 0) return mask;
  return model.hueOf.map((hue, i) => (hue === only && (!mask || mask[i] === 1) ? 1 : 0));
}

const VIEW_WORDS: Record<ViewKind, string> = { both: "Both", icicle: "Icicle", flame: "Flame", top: "Top", tree: "Tree", sandwich: "Sandwich", split: "By label" };

function ViewPicker({ view, change }: { view: View; change: Change }) {
  return (
    <div class="segmented" role="group" aria-label="View">
      {VIEW_KINDS.map((kind) => (
        <button type="button" key={kind} aria-pressed={view.view === kind} data-view={kind} onClick={() => change({ view: kind }, true)}>{VIEW_WORDS[kind]}</button>
      ))}
    </div>
  );
}

function InvertButton({ view, change }: { view: View; change: Change }) {
  const on = view.invert !== "";
  return (
    <button type="button" class={`compare-toggle${on ? " on" : ""}`} aria-pressed={on} data-testid="invert" onClick={() => change({ invert: on ? "" : "1", zoom: "" }, true)} title="Upside down: what costs by itself first, its callers below">Invert</button>
  );
}

interface SearchProps {
  model: Model;
  view: View;
  change: Change;
  pattern: Pattern | null;
  mask: Uint8Array | null;
  input: { current: HTMLInputElement | null };
}

function SearchBox({ model, view, change, pattern, mask, input }: SearchProps) {
  const value = useMemo(() => (mask ? matchedValue(model.layout, mask) : 0), [model, mask]);
  const count = useMemo(() => mask?.reduce((n, m) => n + m, 0) ?? 0, [mask]);
  return (
    <div class="search">
      <input
        ref={input}
        type="search"
        value={view.search}
        placeholder="Search functions: regex  ( / )"
        aria-label="Search functions by regular expression"
        spellcheck={false}
        autocomplete="off"
        onInput={(e) => change({ search: e.currentTarget.value })}
        onKeyDown={(e) => {
          if (e.key === "Escape" && view.search !== "") change({ search: "" });
          else if (e.key === "Escape" || e.key === "Enter") document.querySelector<HTMLElement>(".flame, [data-row='0']")?.focus();
          else return;
          e.preventDefault();
        }}
      />
      <output class={`matched${mask ? "" : " none"}`} data-testid="matched" data-value={value} data-share={model.total > 0 ? value / model.total : 0} title="Share of the total under the matches; a match inside a match counts once">
        {mask ? <><b>{model.percent(value)}</b> in {formatCount(count)} {count === 1 ? "function" : "functions"}</> : ""}
      </output>
      {pattern?.problem && <span class="field-note" role="alert">Searched as plain text: {pattern.problem}</span>}
    </div>
  );
}

const CRUMBS_SHOWN = 4;

/** The way from the root to the zoomed box. */
function Crumbs({ model, zoom, onZoom }: { model: Model; zoom: string; onZoom(key: string): void }) {
  const node = useMemo(() => findKey(model.layout, zoom), [model, zoom]);
  if (node === 0) return null;
  const path = pathTo(model.layout, node);
  const ancestors = path.slice(1, -1);
  const hidden = Math.max(0, ancestors.length - CRUMBS_SHOWN);
  return (
    <nav class="crumbs" aria-label="Zoom" data-testid="crumbs">
      <button type="button" class="crumb-reset" onClick={() => onZoom("")} title="Whole graph (0 or Esc)">total</button>
      {hidden > 0 && <span class="sep" title={`${hidden} frames between`}>… {hidden} …</span>}
      {ancestors.slice(hidden).map((at) => (
        <button type="button" key={at} onClick={() => onZoom(nodeKey(model.layout, at))} title={model.fullName(model.nameOf(at))}>{tail(model.layout.columns.names[model.nameOf(at)]!)}</button>
      ))}
      <span class="here" aria-current="true" title={model.fullName(model.nameOf(node))}>{model.shortName(model.nameOf(node))}</span>
      <span class="share" data-testid="zoom-share" data-share={model.layout.total[node]! / model.total}>{model.detail(node)}</span>
    </nav>
  );
}
