/** Shows what could deceive the eye (control and bidirectional characters) as visible escapes. */
export function printable(text: string): string {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
    (c) => `⟨${c.charCodeAt(0).toString(16).padStart(2, "0")}⟩`,
  );
}

/** Drops the hash of legacy Rust symbols and folds generic arguments to `<…>`: what a reader needs to know a function. */
export function shorten(full: string): string {
  const name = full.replace(/::h[0-9a-f]{16}$/, "");
  const impl = /^<(.*)>::([^<>]*(?:<.*>)?[^<>]*)$/.exec(name);
  if (impl) {
    const [of, method] = [impl[1]!, impl[2]!];
    const split = topLevelAs(of);
    if (split >= 0) {
      const self = fold(of.slice(0, split));
      return `<${self} as ${lastSegment(fold(of.slice(split + 4)))}>::${fold(method)}`;
    }
  }
  return fold(name);
}

/** Spellings of a name for boxes, longest first: folded, crate…function, function alone. */
export function spellings(full: string): string[] {
  const short = printable(shorten(full));
  const out = [short];
  const parts = segments(short);
  if (parts.length > 2) {
    const last = parts[parts.length - 1]!;
    if (parts.length > 3) out.push(`${parts[0]}::…::${parts[parts.length - 2]}::${last}`);
    out.push(`${parts[0]}::…::${last}`);
  }
  const go = /^(.*\/)?([^/]+)$/.exec(short);
  if (parts.length === 1 && go?.[1]) out.push(go[2]!);
  if (parts.length > 1) out.push(parts[parts.length - 1]!);
  return out.sort((a, b) => b.length - a.length);
}

/** Replaces every outermost `<…>` with `<…>`, except a leading qualified-self. */
function fold(text: string): string {
  let out = "";
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === "<" && (depth > 0 || !startsQualifiedSelf(text, i))) {
      if (depth++ === 0) out += out.endsWith("::") ? "" : "";
    } else if (c === ">" && depth > 0 && text[i - 1] !== "-") {
      depth--;
      if (depth === 0) out += "<…>";
    } else if (depth === 0) out += c;
  }
  return out.replace(/::<…>/g, "").replace(/<…>/g, "");
}

function startsQualifiedSelf(text: string, at: number): boolean {
  return at === 0 || /[\s(&]/.test(text[at - 1]!);
}

/** Position of ` as ` outside of angle brackets, or -1. */
function topLevelAs(text: string): number {
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "<") depth++;
    else if (text[i] === ">" && text[i - 1] !== "-") depth--;
    else if (depth === 0 && text.startsWith(" as ", i)) return i;
  }
  return -1;
}

/** Path segments at `::` outside of brackets of any kind. */
export function segments(text: string): string[] {
  const out: string[] = [];
  let depth = 0;
  let from = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === "<" || c === "(" || c === "[" || c === "{") depth++;
    else if ((c === ">" && text[i - 1] !== "-") || c === ")" || c === "]" || c === "}") depth--;
    else if (depth === 0 && c === ":" && text[i + 1] === ":") {
      out.push(text.slice(from, i));
      from = i + 2;
      i++;
    }
  }
  out.push(text.slice(from));
  return out;
}

function lastSegment(text: string): string {
  const parts = segments(text);
  return parts[parts.length - 1]!;
}
