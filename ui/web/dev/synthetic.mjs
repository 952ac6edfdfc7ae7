// Synthetic trees in the server's formats. Everything is a function of its seed.

/** Small deterministic random numbers (mulberry32). */
export function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** A tree being built: `add(path, value)` merges stacks; `finish` gives preorder columns. */
class Builder {
  constructor() {
    this.names = ["total"];
    this.ids = new Map([["total", 0]]);
    this.root = { name: 0, self: 0, children: new Map() };
  }

  id(name) {
    let id = this.ids.get(name);
    if (id === undefined) {
      id = this.names.push(name) - 1;
      this.ids.set(name, id);
    }
    return id;
  }

  add(path, value) {
    let at = this.root;
    for (const name of path) {
      const id = this.id(name);
      let child = at.children.get(id);
      if (!child) at.children.set(id, (child = { name: id, self: 0, children: new Map() }));
      at = child;
    }
    at.self += value;
  }

  finish() {
    const depth = [], name = [], self = [];
    const stack = [[this.root, 0]];
    while (stack.length > 0) {
      const [node, d] = stack.pop();
      depth.push(d);
      name.push(node.name);
      self.push(node.self);
      for (const child of [...node.children.values()].reverse()) stack.push([child, d + 1]);
    }
    return { names: this.names, depth, name, self };
  }
}

export const HOT = "checkout::pricing::apply_discounts";
export const HOT_SHARE = 0.375;

const TOKIO = [
  "clone3", "start_thread", "std::sys::pal::unix::thread::Thread::new::thread_start", "core::ops::function::FnOnce::call_once{{vtable.shim}}::h0123456789abcdef",
  "std::thread::Builder::spawn_unchecked_::{{closure}}", "tokio::runtime::blocking::pool::Inner::run", "tokio::runtime::task::harness::Harness<T,S>::poll",
  "tokio::runtime::scheduler::multi_thread::worker::Context::run_task", "<axum::routing::route::RouteFuture<E> as core::future::future::Future>::poll",
  "<tower::util::oneshot::Oneshot<S,Req> as core::future::future::Future>::poll",
];

const HANDLERS = [
  [["checkout::routes::cart::{{closure}}", "checkout::pricing::total", HOT], 300],
  [["checkout::routes::quote::{{closure}}", "checkout::pricing::total", HOT], 75],
  [["checkout::routes::cart::{{closure}}", "checkout::pricing::total", "checkout::pricing::tax", "core::slice::sort::stable::driftsort_main"], 60],
  [["checkout::routes::cart::{{closure}}", "serde_json::de::from_slice", "<serde_json::de::Deserializer<R> as serde::de::Deserializer>::deserialize_struct", "serde_json::read::SliceRead::parse_str_bytes"], 90],
  [["checkout::routes::cart::{{closure}}", "serde_json::ser::to_vec", "<alloc::vec::Vec<u8,A> as std::io::Write>::write_all", "memcpy@plt"], 40],
  [["checkout::routes::receipt::{{closure}}", "flate2::zio::Writer<W,D>::write_with_status", "zlib_rs::deflate::algorithm::slow::deflate_slow", "zlib_rs::deflate::longest_match::longest_match_avx2"], 130],
  [["checkout::routes::receipt::{{closure}}", "sha2::sha256::compress256", "sha2::sha256::x86::digest_blocks"], 85],
  [["checkout::routes::cart::{{closure}}", "hashbrown::map::HashMap<K,V,S,A>::insert", "alloc::alloc::alloc", "malloc", "_int_malloc"], 45],
  [["tokio::net::tcp::stream::TcpStream::poll_write", "mio::net::tcp::stream::TcpStream::write", "__libc_send", "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_sendto", "tcp_sendmsg_locked"], 80],
  [["checkout::routes::vendor::{{closure}}", "libvendor.so+0x4f21", "libvendor.so+0x118c"], 38],
  [["checkout::routes::tree::{{closure}}", ...new Array(9).fill("checkout::catalog::walk")], 42],
];

/** A small service whose hot function has a known share. */
export function checkout() {
  const b = new Builder();
  const sum = HANDLERS.reduce((n, [, v]) => n + v, 0);
  for (const [path, v] of HANDLERS) b.add([...TOKIO, ...path], v * 1e7);
  b.add(["_start", "__libc_start_main", "std::rt::lang_start_internal", "checkout::main", "tokio::runtime::park::Inner::park", "epoll_wait"], (1000 - sum) * 1e7);
  return b.finish();
}

/** Names that try to break out of the page. */
export function hostile() {
  const b = new Builder();
  b.add(["<img src=x onerror=alert(1)>", "</script><script>window.hacked=1</script>"], 4e9);
  b.add(["javascript:alert(1)", "\u202egnp.exe\u202c\u0007", "&lt;b&gt;", "a".repeat(5000)], 3e9);
  b.add(["名前空間::関数", "émoji 🔥::burn", ""], 2e9);
  b.add(["'\"><svg onload=alert(1)>"], 1e9);
  return b.finish();
}

const CRATES = ["shop", "shop_core", "serde_json", "tokio", "hyper", "std", "core", "alloc", "regex_automata", "rustls", "h2", "tracing", "sqlx", "bytes"];
const WORDS = ["poll", "read", "write", "parse", "visit", "next", "drive", "encode", "decode", "merge", "insert", "lookup", "flush", "apply", "scan", "hash"];

/** A random tree of `nodes` nodes with Zipf-like widths and 20,000 names at most, 95 deep. */
export function zipf(nodes, seed = 7) {
  const rnd = random(seed);
  const names = ["total"];
  const nameCount = Math.min(20_000, Math.max(100, nodes >> 1));
  for (let i = 1; i < nameCount; i++) {
    const crate = CRATES[(rnd() * CRATES.length) | 0];
    names.push(i % 50 === 0 ? `lib${crate}.so+0x${(i * 4096).toString(16)}` : i % 37 === 0 ? `sys_${i}` : `${crate}::${WORDS[i % 16]}_${(i / 16) | 0}::${WORDS[(rnd() * 16) | 0]}`);
  }
  names[1] = "shop::main";
  const depth = new Uint16Array(nodes), name = new Uint32Array(nodes), self = new Float64Array(nodes);
  let at = 1;
  let d = 0;
  while (at < nodes) {
    // Mostly downwards, then back to a random caller: long stacks with bushy ends.
    d = rnd() < 0.62 ? d + 1 : Math.max(1, d - ((rnd() * rnd() * 9) | 0));
    if (d > 95) d = 20;
    depth[at] = d;
    name[at] = 1 + ((rnd() ** 3 * (nameCount - 1)) | 0);
    self[at] = rnd() < 0.5 ? 0 : Math.floor(1e5 / (0.0004 + rnd() ** 2));
    at++;
  }
  return { names, depth, name, self };
}

export function totalOf(tree) {
  let sum = 0;
  for (const v of tree.self) sum += v;
  return sum;
}

/** The server's binary form, version 1. */
export function encode(tree, meta) {
  const metaBytes = Buffer.from(JSON.stringify(meta));
  const count = tree.depth.length;
  const nameBytes = tree.names.map((n) => Buffer.from(n));
  const version = tree.base ? 2 : 1;
  const room = 20 + metaBytes.length + nameBytes.reduce((n, b) => n + b.length + 5, 0) + count * 28;
  const out = Buffer.alloc(room);
  out.write("PLTR", 0, "latin1");
  [version, count, tree.names.length, metaBytes.length].forEach((v, i) => out.writeUInt32LE(v, 4 + 4 * i));
  let at = 20 + metaBytes.copy(out, 20);
  const leb = (v) => {
    while (v >= 128) {
      out[at++] = (v % 128) | 128;
      v = Math.floor(v / 128);
    }
    out[at++] = v;
  };
  for (const b of nameBytes) {
    leb(b.length);
    at += b.copy(out, at);
  }
  for (let i = 0; i < count; i++) leb(tree.depth[i]);
  for (let i = 0; i < count; i++) leb(tree.name[i]);
  for (const column of [tree.self, tree.base ?? []]) for (const v of column) leb(v >= 0 ? v * 2 : -v * 2 - 1);
  return out.subarray(0, at);
}
