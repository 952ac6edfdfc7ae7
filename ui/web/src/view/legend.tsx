import { useMemo } from "preact/hooks";
import type { Theme } from "../flame/index.ts";
import type { Model } from "../model/model.ts";
import { ORIGINS, ORIGIN_HELP, type Origin } from "../model/origin.ts";
import { swatch } from "./top.tsx";

interface Props {
  model: Model;
  theme: Theme;
  only: string;
  onOnly(origin: string): void;
}

/** What the hues mean, how much each holds, and a click shows one alone. */
export function Legend({ model, theme, only, onOnly }: Props) {
  const shares = useMemo(() => model.originShares(), [model]);
  return (
    <div class="legend" role="group" aria-label="Origins, by share of own cost">
      {ORIGINS.map((origin: Origin, i) => (
        <button
          type="button"
          key={origin}
          class={`origin${only !== "" && only !== origin ? " off" : ""}`}
          aria-pressed={only === origin}
          title={`${ORIGIN_HELP[origin]}. Click to show it alone.`}
          onClick={() => onOnly(only === origin ? "" : origin)}
          hidden={shares[i] === 0 && only !== origin}
        >
          <span class={`swatch${origin === "unknown" ? " hatched" : ""}`} style={{ backgroundColor: swatch(theme, i) }} />
          {origin}<span class="share">{model.percent(shares[i]!)}</span>
        </button>
      ))}
    </div>
  );
}
