import { useMemo, useState } from "preact/hooks";
import type { Direction, Theme } from "../flame/index.ts";
import type { Model } from "../model/model.ts";
import { FlamePane } from "./flamepane.tsx";

interface Props {
  model: Model;
  theme: Theme;
  /** The function in the middle; without one the heaviest by itself. */
  selected: string | null;
  onSelect(name: string): void;
}

/** A function between all that calls it and all that it calls. */
export function SandwichPanes({ model, theme, selected, onSelect }: Props) {
  const name = useMemo(() => middleOf(model, selected), [model, selected]);
  const sides = useMemo(() => (name < 0 ? null : model.sandwich(name)), [model, name]);
  if (!sides) return <p class="table-note">Nothing of this name is in the selection: choose a function in the table.</p>;
  const { self, total } = model.top;
  return (
    <div class="sandwich" data-testid="sandwich" data-name={model.layout.columns.names[name]}>
      <Side key={`callers ${name}`} {...{ theme, onSelect }} model={sides.callers} direction="flame" what="callers" />
      <p class="sandwich-middle" title={model.fullName(name)}>
        <b>{model.shortName(name)}</b>
        {!model.diff && <span class="muted"> total {model.value(total[name]!)} ({model.percent(total[name]!)}), self {model.value(self[name]!)} ({model.percent(self[name]!)})</span>}
        <span class="muted"> · callers above, callees below; a click in the table takes another</span>
      </p>
      <Side key={`callees ${name}`} {...{ theme, onSelect }} model={sides.callees} direction="icicle" what="callees" />
    </div>
  );
}

interface SideProps {
  model: Model;
  theme: Theme;
  direction: Direction;
  what: string;
  onSelect(name: string): void;
}

function Side({ what, ...rest }: SideProps) {
  const [zoom, setZoom] = useState("");
  return <div class="sandwich-side" data-testid={what}><FlamePane {...rest} pattern={null} zoom={zoom} onlyHue={-1} onZoom={setZoom} /></div>;
}

/** The chosen function; the heaviest by itself where none is; −1 where it does not occur. */
function middleOf(model: Model, selected: string | null): number {
  const { self, total } = model.top;
  if (selected !== null) {
    const at = model.layout.columns.names.indexOf(selected);
    return at >= 0 && total[at]! > 0 && at !== model.rootName ? at : -1;
  }
  let best = -1;
  for (let i = 0; i < self.length; i++) if (i !== model.rootName && total[i]! > 0 && (best < 0 || self[i]! > self[best]!)) best = i;
  return best;
}
