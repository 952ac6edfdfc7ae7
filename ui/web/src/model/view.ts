/** Everything that a link carries. Empty text means the default, and is left out of the link. */
export interface View {
  readonly type: string;
  readonly q: string;
  readonly from: string;
  readonly until: string;
  readonly view: ViewKind;
  /** Direction of the graph where `view` does not say it. */
  readonly dir: "icicle" | "flame";
  readonly zoom: string;
  readonly search: string;
  readonly sort: string;
  readonly origin: string;
  /** Origins whose frames are shown as part of their callers, with commas. */
  readonly fold: string;
  /** Callees first, when it is not empty. */
  readonly invert: string;
  /** Label whose values the split lists. */
  readonly by: string;
  /** What to compare with: where one is given, the page shows a diff. */
  readonly base_q: string;
  readonly base_from: string;
  readonly base_until: string;
}

export const VIEW_KINDS = ["both", "icicle", "flame", "top", "tree", "sandwich", "split"] as const;
export type ViewKind = (typeof VIEW_KINDS)[number];

export const DEFAULT_VIEW: View = {
  type: "", q: "", from: "now-1h", until: "now", view: "both", dir: "icicle", zoom: "", search: "", sort: "self", origin: "", fold: "", invert: "", by: "service_name",
  base_q: "", base_from: "", base_until: "",
};

const KEYS = Object.keys(DEFAULT_VIEW) as (keyof View)[];

export function readView(query: string): View {
  const params = new URLSearchParams(query);
  const out: Record<string, string> = { ...DEFAULT_VIEW };
  for (const key of KEYS) {
    const given = params.get(key);
    if (given !== null && given !== "") out[key] = given;
  }
  if (!(VIEW_KINDS as readonly string[]).includes(out.view!)) out.view = DEFAULT_VIEW.view;
  if (out.view === "flame" || out.view === "icicle") out.dir = out.view;
  if (out.dir !== "flame") out.dir = "icicle";
  return out as unknown as View;
}

/** The query text of a view, with `?`; readable characters stay readable. */
export function writeView(view: View): string {
  const parts: string[] = [];
  for (const key of KEYS) {
    if (view[key] === DEFAULT_VIEW[key]) continue;
    if (key === "dir" && view.view !== "both") continue;
    parts.push(`${key}=${encodeURIComponent(view[key]).replace(/%3A/g, ":").replace(/%2C/g, ",").replace(/%7B/g, "{").replace(/%7D/g, "}").replace(/%3D/g, "=").replace(/%40/g, "@")}`);
  }
  return parts.length === 0 ? "?" : `?${parts.join("&")}`;
}

export function isDiff(view: Pick<View, "base_q" | "base_from" | "base_until">): boolean {
  return view.base_q !== "" || view.base_from !== "" || view.base_until !== "";
}

export function isLive(view: View): boolean {
  return view.until === "now" && view.from.startsWith("now-");
}
