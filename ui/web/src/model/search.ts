/** A search text made ready: a regular expression, case-blind unless the text has capitals. */
export interface Pattern {
  readonly test: (name: string) => boolean;
  /** Why the text is not a regular expression; it is then searched for as it stands. */
  readonly problem: string | null;
}

export function compile(text: string): Pattern | null {
  if (text === "") return null;
  const flags = /[A-Z]/.test(text) ? "" : "i";
  try {
    const re = new RegExp(text, flags);
    return { test: (name) => re.test(name), problem: null };
  } catch (e) {
    const literal = new RegExp(escape(text), flags);
    const why = e instanceof Error ? e.message.replace(/^Invalid regular expression: /, "") : String(e);
    return { test: (name) => literal.test(name), problem: why };
  }
}

/** A pattern that finds exactly one name. */
export function exactly(name: string): string {
  return `^${escape(name)}$`;
}

function escape(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
}
