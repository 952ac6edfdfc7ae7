import type { ProfileType } from "../model/api.ts";
import { printable } from "../model/names.ts";
import { nearestPreset, parseTime } from "../model/time.ts";
import { isLive, type View } from "../model/view.ts";
import { Flame } from "./notes.tsx";
import { SelectorBox } from "./selector.tsx";
import type { Change } from "./state.ts";
import type { ThemeChoice } from "./theme.ts";
import { TimeRange } from "./timerange.tsx";

interface Props {
  view: View;
  types: ProfileType[] | null;
  change: Change;
  theme: ThemeChoice;
  onTheme(t: ThemeChoice): void;
  onHelp(): void;
}

const NEXT_THEME: Record<ThemeChoice, ThemeChoice> = { system: "light", light: "dark", dark: "system" };
const THEME_ICON: Record<ThemeChoice, string> = { system: "◐", light: "○", dark: "●" };

/** The bar on top: what is shown. */
export function Toolbar({ view, types, change, theme, onTheme, onHelp }: Props) {
  const live = isLive(view);
  const toggleLive = () => {
    const now = Date.now();
    const start = parseTime(view.from, now);
    if (live) change({ from: String(Math.round(start)), until: String(now) }, true);
    else change({ from: nearestPreset(parseTime(view.until, now) - start), until: "now" }, true);
  };
  return (
    <header class="toolbar">
      <a class="brand" href="?" title="pilotlight: start again"><Flame /><span>pilotlight</span></a>
      <TypePicker view={view} types={types} onChange={(type) => change({ type, zoom: "" }, true)} />
      <SelectorBox view={view} onChange={(q) => change({ q }, true)} />
      <TimeRange view={view} onChange={(from, until) => change({ from, until }, true)} />
      <button type="button" class={`live${live ? " on" : ""}`} aria-pressed={live} onClick={toggleLive} title={live ? "Follows the clock. Click to hold still" : "Click to follow the clock"}>
        <span class="dot" aria-hidden="true" />Live
      </button>
      <button type="button" class="icon" title={`Colours: ${theme}`} aria-label={`Colours: ${theme}. Change`} onClick={() => onTheme(NEXT_THEME[theme])}>{THEME_ICON[theme]}</button>
      <button type="button" class="icon" title="Keys (?)" aria-label="Help: keys" onClick={onHelp}>?</button>
    </header>
  );
}

function TypePicker({ view, types, onChange }: { view: View; types: ProfileType[] | null; onChange(t: string): void }) {
  // A link may name the sample type alone.
  const alike = types?.filter((t) => t.id === view.type || t.sample_type === view.type) ?? [];
  const known = alike.length === 1;
  return (
    <select class="field type" aria-label="Profile type" value={known ? alike[0]!.id : view.type} onChange={(e) => onChange(e.currentTarget.value)} data-testid="type">
      {!known && <option value={view.type}>{view.type === "" ? "no profile types" : printable(view.type.split(":")[1] ?? view.type)}</option>}
      {types?.map((t) => <option key={t.id} value={t.id}>{printable(typeWords(t, types))}</option>)}
    </select>
  );
}

const WORDS: Record<string, string> = {
  "cpu nanoseconds": "CPU time", "samples count": "CPU samples", "wall nanoseconds": "Wall time", "alloc_space bytes": "Allocated bytes",
  "alloc_objects count": "Allocations", "inuse_space bytes": "Heap in use", "inuse_objects count": "Objects in use",
  "goroutine count": "Goroutines", "goroutines count": "Goroutines", "contentions count": "Lock waits", "delay nanoseconds": "Lock wait time",
};

/** What a type is called; its profile's name is added where two would be called the same. */
function typeWords(t: ProfileType, all: readonly ProfileType[]): string {
  const words = WORDS[`${t.sample_type} ${t.sample_unit}`] ?? `${t.sample_type} (${t.sample_unit})`;
  const twin = all.some((o) => o !== t && o.sample_type === t.sample_type && o.sample_unit === t.sample_unit);
  return twin ? `${words} · ${t.name}` : words;
}
