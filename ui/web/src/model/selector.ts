/** One condition on a label, in Prometheus' words. */
export interface Matcher {
  readonly name: string;
  readonly op: "=" | "!=" | "=~" | "!~";
  readonly value: string;
}

const NAME = /^[A-Za-z_][\w.\-/]*/;
const OP = /^(=~|!~|!=|=)/;

/** Reads `{a="b",c=~"d"}` (braces optional). Throws an Error that names the place. */
export function parseSelector(text: string): Matcher[] {
  const inner = text.trim().replace(/^\{/, "").replace(/\}$/, "");
  const out: Matcher[] = [];
  let rest = inner.trim();
  while (rest !== "") {
    const [matcher, left] = readMatcher(rest, inner.length - rest.length);
    out.push(matcher);
    rest = left.trimStart();
    if (rest.startsWith(",")) rest = rest.slice(1).trimStart();
    else if (rest !== "") throw new Error(`expected a comma before “${rest}”`);
  }
  return out;
}

function readMatcher(text: string, at: number): [Matcher, string] {
  const name = NAME.exec(text)?.[0];
  if (!name) throw new Error(`expected a label name at character ${at + 1}`);
  const behind = text.slice(name.length).trimStart();
  const op = OP.exec(behind)?.[0] as Matcher["op"] | undefined;
  if (!op) throw new Error(`expected =, !=, =~ or !~ after “${name}”`);
  const [value, rest] = readValue(behind.slice(op.length).trimStart());
  return [{ name, op, value }, rest];
}

/** A quoted string with backslash escapes, or a bare word up to a comma. */
function readValue(text: string): [string, string] {
  if (text[0] !== '"') {
    const bare = /^[^,]*/.exec(text)![0];
    return [bare.trim(), text.slice(bare.length)];
  }
  let out = "";
  for (let i = 1; i < text.length; i++) {
    if (text[i] === '"') return [out, text.slice(i + 1)];
    if (text[i] === "\\" && i + 1 < text.length) out += { n: "\n", t: "\t" }[text[++i]!] ?? text[i];
    else out += text[i];
  }
  throw new Error("the quoted value does not end: add a quote");
}

/** The canonical text of matchers; empty for none. */
export function formatSelector(matchers: readonly Matcher[]): string {
  if (matchers.length === 0) return "";
  return `{${matchers.map(formatMatcher).join(",")}}`;
}

export function formatMatcher(m: Matcher): string {
  return `${m.name}${m.op}"${m.value.replace(/[\\"]/g, "\\$&").replace(/\n/g, "\\n")}"`;
}

/** The services that a selector asks for by name; none where it cannot be read. */
export function servicesOf(q: string): string[] {
  try {
    return parseSelector(q).filter((m) => m.name === "service_name" && m.op === "=").map((m) => m.value);
  } catch {
    return [];
  }
}

/** The selector `q` with the label `name` held to `value`, whatever it asked of that label before. */
export function withValue(q: string, name: string, value: string): string {
  let kept: Matcher[] = [];
  try {
    kept = parseSelector(q).filter((m) => m.name !== name);
  } catch {
    // A selector that cannot be read selects nothing; the new condition stands alone.
  }
  return formatSelector([...kept, { name, op: "=", value }]);
}
