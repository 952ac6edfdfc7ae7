import type { Model } from "../model/model.ts";
import { FOLDABLE, parseFold, toggleFold } from "../model/fold.ts";
import { ORIGINS } from "../model/origin.ts";

interface Props {
  model: Model;
  fold: string;
  onFold(fold: string): void;
}

/** A switch an origin: off hides its frames, and what they cost is their caller's. */
export function FoldBar({ model, fold, onFold }: Props) {
  const folded = parseFold(fold);
  const shown = FOLDABLE.filter((origin) => model.has(origin) || folded.has(ORIGINS.indexOf(origin)));
  if (shown.length === 0) return null;
  return (
    <div class="fold" role="group" aria-label="Frames shown as part of their callers" data-testid="fold">
      <span class="muted">Fold</span>
      {shown.map((origin) => {
        const on = folded.has(ORIGINS.indexOf(origin));
        return (
          <button
            type="button"
            key={origin}
            data-fold={origin}
            aria-pressed={on}
            title={on ? `Show ${origin} frames again` : `Hide ${origin} frames: what they cost is shown as their caller's own, and their callees stand below it`}
            onClick={() => onFold(toggleFold(fold, origin))}
          >{origin}</button>
        );
      })}
    </div>
  );
}
