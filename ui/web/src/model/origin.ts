/** Where a function comes from. The order is that of the hues and of the legend. */
export const ORIGINS = ["app", "dependency", "runtime", "libc", "kernel", "unknown"] as const;
export type Origin = (typeof ORIGINS)[number];

export const ORIGIN_HELP: Record<Origin, string> = {
  app: "Your program: its crate (the one with main, or named like the service) and its siblings",
  dependency: "Libraries that the program uses",
  runtime: "The language's own library and runtime: std, core, alloc, Tokio; Go's standard library",
  libc: "C library, dynamic linker and C functions",
  kernel: "The operating system's kernel",
  unknown: "Frames without a name: symbols are missing",
};

const [APP, DEPENDENCY, RUNTIME, LIBC, KERNEL, UNKNOWN] = [0, 1, 2, 3, 4, 5];

const RUST_RUNTIME = new Set([
  "std", "core", "alloc", "proc_macro", "test", "rustc_demangle", "hashbrown", "compiler_builtins", "panic_unwind",
  "tokio", "tokio_util", "mio", "futures", "futures_core", "futures_util", "futures_executor", "async_std", "smol", "rayon", "rayon_core", "pilotlight", "__rustc",
]);
const KERNEL_NAME = /^(\[k\]|\[kernel|\[exiting\]$|entry_SYSCALL|do_syscall|__x64_sys_|__do_sys_|asm_(sysvec|exc)_|syscall_|ret_from_fork|exc_page_fault|vfs_|tcp_v[46]_|__schedule$|schedule$|do_(idle|futex|epoll|user_addr_fault)|x64_sys_call)/;
const UNKNOWN_NAME = /^\[?(unknown|\?\?\?|unresolved|truncated)\]?$|^\[(?:jit|script) code without a name\]$|^0x[0-9a-f]+$|^[^:\s]+\+0x[0-9a-f]+$|^$/i;
/** `<`, `&`, `[`, `dyn `, `*mut `: what may stand before the crate in a Rust name. */
const BEFORE_CRATE = /^(?:[<&[(\s*]|dyn |mut |const |impl )+/;
const GO_NAME = /^((?:[\w.\-~%]+\/)*[\w\-~%]+(?:\.v\d+)?)\.[(\w]/;

/**
 * Origin of each name. `services` are the service names in the selection: a hint which crates are the program's own.
 * `fileOf` gives the source file of a name where it is known: inlined functions often carry no path in their name.
 */
export function classify(names: readonly string[], services: readonly string[], fileOf?: ReadonlyMap<string, string>): Uint8Array {
  const own = ownCrates(names, services);
  const out = new Uint8Array(names.length);
  for (let i = 0; i < names.length; i++) {
    const byName = originOf(names[i]!, own);
    const file = fileOf?.get(names[i]!);
    // Closures of many files share a name; runtimes built from a local folder are still runtimes.
    const byFile = file && !names[i]!.startsWith("{") ? originOfFile(file, own) : NONE;
    out[i] = byFile === NONE || (byFile === APP && byName === RUNTIME && isQualified(names[i]!)) ? byName : byFile;
  }
  return out;
}

const NONE = -1;

/** Where a source file comes from, or NONE when its path does not tell. */
function originOfFile(file: string, own: Set<string>): number {
  if (/(^\/rustc\/|\/rust\/|\/rust-src\/)[\s\S]*library\/|^library\//.test(file)) return RUNTIME!;
  const crate = /\/(?:registry\/src|git\/checkouts|vendor)\/(?:[^/]+\/)?([\w-]+?)-?(?:\d+\.\d+\.\d+[^/]*)?\//.exec(file)?.[1];
  if (crate) {
    const name = crate.replace(/-/g, "_");
    return own.has(name) ? APP! : RUST_RUNTIME.has(name) ? RUNTIME! : DEPENDENCY!;
  }
  if (/\/pkg\/mod\//.test(file)) return DEPENDENCY!;
  if (/\/(usr\/local\/)?go[\d.]*\/src\//.test(file)) return RUNTIME!;
  return file.endsWith(".rs") ? APP! : NONE;
}

function ownCrates(names: readonly string[], services: readonly string[]): Set<string> {
  const own = new Set(services.map((s) => s.replace(/-/g, "_")));
  for (const name of names) {
    if (!name.includes("main")) continue;
    const crate = /^(\w+)::main(?:::|$)/.exec(name)?.[1];
    if (crate && !RUST_RUNTIME.has(crate)) own.add(crate);
  }
  return own;
}

/** Whether a Rust name says its crate: `::` outside of generic arguments. */
function isQualified(name: string): boolean {
  const colons = name.indexOf("::");
  const generics = name.indexOf("<");
  return colons > 0 && (generics <= 0 || colons < generics);
}

function originOf(name: string, own: Set<string>): number {
  if (isQualified(name)) return rustOrigin(name, own);
  // `fold<u8, …>`, `{closure#0}`, `{async_fn#0}`: inlined Rust whose path was not recorded; most such code is the library's.
  if (name.indexOf("<") > 0 || name.startsWith("{")) return RUNTIME!;
  if (UNKNOWN_NAME.test(name)) return UNKNOWN!;
  if (KERNEL_NAME.test(name)) return KERNEL!;
  return goOrigin(name, own);
}

function rustOrigin(name: string, own: Set<string>): number {
  const start = BEFORE_CRATE.exec(name)?.[0].length ?? 0;
  const crate = /^\w+/.exec(name.slice(start, start + 64))?.[0];
  if (!crate) return DEPENDENCY!;
  if (own.has(crate)) return APP!;
  if (RUST_RUNTIME.has(crate)) return RUNTIME!;
  for (const o of own) if (o.length > 2 && crate.startsWith(`${o}_`)) return APP!;
  // The profiler's own crates, in a program that is profiled by it.
  return crate.startsWith("pilotlight_") ? RUNTIME! : DEPENDENCY!;
}

function goOrigin(name: string, own: Set<string>): number {
  const pkg = GO_NAME.exec(name)?.[1];
  if (pkg === undefined) return name.includes(".") && !/@|\.(cold|part|isra|constprop|llvm)/.test(name) ? RUNTIME! : LIBC!;
  if (/\.(cold|part|isra|constprop|llvm)/.test(name) && !pkg.includes("/")) return LIBC!;
  if (pkg === "main" || own.has(pkg)) return APP!;
  return pkg.slice(0, pkg.indexOf("/") >>> 0).includes(".") ? DEPENDENCY! : RUNTIME!;
}

/** Calls C functions below an entry to the kernel kernel functions: their names alone do not tell. */
export function markKernel(origin: Uint8Array, depth: Uint16Array, name: Uint32Array): void {
  let inside = -1;
  for (let i = 0; i < depth.length; i++) {
    if (inside >= 0 && depth[i]! <= inside) inside = -1;
    const id = name[i]!;
    if (inside < 0 && origin[id] === KERNEL) inside = depth[i]!;
    else if (inside >= 0 && origin[id] === LIBC) origin[id] = KERNEL!;
  }
}

/** Origin of each node: that of its name, and for closures whose name says nothing that of their caller. */
export function spread(origin: Uint8Array, names: readonly string[], depth: Uint16Array, name: Uint32Array): Uint8Array {
  const closure = Uint8Array.from(names, (n) => (n.startsWith("{") ? 1 : 0));
  const out = new Uint8Array(depth.length);
  const above = new Uint8Array(0x10000);
  for (let i = 0; i < depth.length; i++) {
    const d = depth[i]!;
    const id = name[i]!;
    out[i] = above[d] = closure[id] === 1 && d > 0 ? above[d - 1]! : origin[id]!;
  }
  return out;
}

/** Own value by origin: what the legend shows. */
export function sharesByOrigin(originOfNode: Uint8Array, self: Float64Array): number[] {
  const out = new Array<number>(ORIGINS.length + 1).fill(0);
  for (let i = 0; i < self.length; i++) out[originOfNode[i]!]! += Math.max(0, self[i]!);
  return out;
}
