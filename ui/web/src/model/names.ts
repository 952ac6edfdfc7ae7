/** Shows what could deceive the eye (control and bidirectional characters) as visible escapes. */
export function printable(text: string): string {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
    (c) => `⟨${c.charCodeAt(0).toString(16).padStart(2, "0")}⟩`,
  );
}

/** Names beyond this are cut unparsed: nobody reads them, and hostile ones would cost time. */
const LONGEST = 2000;

/** Drops the hash of legacy Rust symbols and leaves out generic arguments: what a reader needs to know a function. */
export function shorten(full: string): string {
  if (full === "") return "(no name)";
  if (full.length > LONGEST) return `${full.slice(0, LONGEST)}…`;
  if (!full.includes("::") && !/^\w+<.*>$/.test(full)) return full;
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
  const parts = functionLast(segments(short));
  if (parts.length > 2) {
    const last = parts[parts.length - 1]!;
    if (parts.length > 3) out.push(`${parts[0]}::…::${parts[parts.length - 2]}::${last}`);
    out.push(`${parts[0]}::…::${last}`);
  }
  const last = lastPart(short);
  if (last !== short && last !== "") out.push(last);
  return out.sort((a, b) => b.length - a.length);
}

/** A closure says nothing without the function that it stands in: both become the last part. */
function functionLast(parts: readonly string[]): string[] {
  let at = parts.length - 1;
  while (at > 0 && parts[at]!.startsWith("{{")) at--;
  return [...parts.slice(0, at), parts.slice(at).join("::")];
}

/** The last part of a shortened name: the function, or the package and function of a Go name. */
export function lastPart(short: string): string {
  const parts = functionLast(segments(short));
  return parts.length > 1 ? parts[parts.length - 1]! : short.slice(short.lastIndexOf("/", short.indexOf("(") >>> 0) + 1);
}

/** The function with what it belongs to: the last two parts of the path. */
export function tail(full: string): string {
  return functionLast(segments(printable(shorten(full)))).slice(-2).join("::");
}

/** Leaves out generic arguments; a leading `<Self as Trait>` is not one. */
function fold(text: string): string {
  let out = "";
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === "<" && (depth > 0 || !startsQualifiedSelf(text, i))) depth++;
    else if (c === ">" && depth > 0 && text[i - 1] !== "-") {
      depth--;
      if (depth === 0 && out.endsWith("::")) out = out.slice(0, -2);
    } else if (depth === 0) out += c;
  }
  return out;
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
