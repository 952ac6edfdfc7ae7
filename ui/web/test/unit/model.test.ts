import assert from "node:assert/strict";
import { test } from "node:test";
import { layout } from "../../src/flame/index.ts";
import { heavyPath, unfold } from "../../src/model/calltree.ts";
import { formatCount, formatPercent, formatValue } from "../../src/model/format.ts";
import { printable, shorten, spellings, tail } from "../../src/model/names.ts";
import { classify, markKernel, ORIGINS, spread } from "../../src/model/origin.ts";
import { decodeTree } from "../../src/model/pltr.ts";
import { compile, exactly } from "../../src/model/search.ts";
import { formatSelector, parseSelector } from "../../src/model/selector.ts";
import { formatSpan, nearestPreset, parseTime } from "../../src/model/time.ts";
import { orderTop, parseSort, topOf } from "../../src/model/top.ts";
import { DEFAULT_VIEW, readView, writeView } from "../../src/model/view.ts";
import { checkout, encode, hostile, HOT, HOT_SHARE, totalOf } from "../../dev/synthetic.mjs";
import { SMALL, tree } from "./fixtures.ts";

function binary(tree: ReturnType<typeof checkout>, meta: object = {}): ArrayBuffer {
  const b = encode(tree, meta);
  return b.buffer.slice(b.byteOffset, b.byteOffset + b.byteLength) as ArrayBuffer;
}

test("the binary tree reads back as it was written, names of all alphabets included", () => {
  for (const made of [checkout(), hostile()]) {
    const { columns, meta } = decodeTree(binary(made, { unit: "nanoseconds", samples: 5 }));
    assert.deepEqual(columns.names, made.names);
    assert.deepEqual([...columns.depth], [...made.depth]);
    assert.deepEqual([...columns.name], [...made.name]);
    assert.deepEqual([...columns.self], [...made.self]);
    assert.deepEqual([meta.unit, meta.samples, meta.partial, meta.problems], ["nanoseconds", 5, false, []]);
  }
});

test("values beyond 32 and 53 bits and below zero are read to the nearest double", () => {
  const values = [0, -1, 127, 2 ** 31, 2 ** 40 + 1, 2 ** 53, 2 ** 62, -(2 ** 33)];
  const made = { names: ["r"], depth: values.map((_, i) => i), name: values.map(() => 0), self: values };
  assert.deepEqual([...decodeTree(binary(made)).columns.self], values);
});

test("a tree cut at any byte is an error, never a wrong picture", () => {
  const whole = binary(checkout());
  for (let n = 0; n < whole.byteLength; n++) assert.throws(() => decodeTree(whole.slice(0, n)), Error, `cut at ${n}`);
});

test("damaged trees are refused with a reason", () => {
  const b = (depth: number[], name: number[]) => binary({ names: ["r"], depth, name, self: depth.map(() => 1) });
  assert.throws(() => decodeTree(b([0, 2], [0, 0])), /depth 2 after depth 0/);
  assert.throws(() => decodeTree(b([0, 1], [0, 7])), /name 7 of 1/);
  const other = new Uint8Array(b([0], [0]));
  other[4] = 3;
  assert.throws(() => decodeTree(other.buffer), /version 3/);
});

test("top counts recursion once and agrees with the known share", () => {
  const small = topOf(layout(SMALL));
  assert.deepEqual([...small.total], [100, 60, 50, 40]);
  assert.deepEqual([...small.self], [0, 30, 30, 40]);
  const columns = decodeTree(binary(checkout())).columns;
  const top = topOf(layout(columns));
  assert.equal(top.self[columns.names.indexOf(HOT)]! / totalOf(checkout()), HOT_SHARE);
});

test("the table's order follows the sort, its reverse, and the filter", () => {
  const top = topOf(layout(SMALL));
  const names = (sort: string, keep: Uint8Array | null = null) => [...orderTop(top, SMALL.names, 0, parseSort(sort), keep)].map((i) => SMALL.names[i]);
  assert.deepEqual(names("self"), ["c", "a", "b"]);
  assert.deepEqual(names("total"), ["a", "b", "c"]);
  assert.deepEqual(names("-total"), ["c", "b", "a"]);
  assert.deepEqual(names("name"), ["a", "b", "c"]);
  assert.deepEqual(names("self", Uint8Array.of(0, 1, 0, 1)), ["c", "a"]);
  assert.deepEqual(names("nonsense"), names("self"));
});

test("the call tree opens along the heaviest path", () => {
  const l = layout(SMALL);
  const lines = unfold(l, 0, heavyPath(l, 0));
  assert.deepEqual(lines.map((x) => [x.node, x.level, x.position, x.siblings, x.children]), [[0, 1, 1, 1, 2], [1, 2, 1, 2, 1], [2, 3, 1, 1, 1], [3, 4, 1, 1, 0], [4, 2, 2, 2, 0]]);
});

test("names lose hash and generics and keep crate and function", () => {
  const cases: [string, string][] = [
    ["checkout::pricing::apply_discounts::h0123456789abcdef", "checkout::pricing::apply_discounts"],
    ["alloc::vec::Vec<T,A>::push", "alloc::vec::Vec::push"],
    ["core::iter::Iterator::fold::<u8, fn(u8) -> u8>", "core::iter::Iterator::fold"],
    ["<alloc::vec::Vec<u8,A> as std::io::Write>::write_all", "<alloc::vec::Vec as Write>::write_all"],
    ["<[T] as alloc::slice::hack::ConvertVec>::to_vec", "<[T] as ConvertVec>::to_vec"],
    ["std::ops::FnOnce::call_once{{vtable.shim}}::h0123456789abcdef", "std::ops::FnOnce::call_once{{vtable.shim}}"],
    ["main.(*Server).ServeHTTP", "main.(*Server).ServeHTTP"],
    ["malloc", "malloc"],
    ["copy_nonoverlapping<(u64, u64)>", "copy_nonoverlapping"],
    ["try_fold<core::ops::range::Range<u32>, (), fn(u8) -> u8>", "try_fold"],
    ["operator<(a, b)", "operator<(a, b)"],
    ["", "(no name)"],
  ];
  for (const [full, short] of cases) assert.equal(shorten(full), short);
});

test("spellings grow shorter and end with the function", () => {
  assert.deepEqual(spellings("zlib_rs::deflate::algorithm::slow::deflate_slow"), [
    "zlib_rs::deflate::algorithm::slow::deflate_slow", "zlib_rs::…::slow::deflate_slow", "zlib_rs::…::deflate_slow", "deflate_slow",
  ]);
  assert.equal(spellings("checkout::routes::cart::{{closure}}::{{closure}}").at(-1), "cart::{{closure}}::{{closure}}");
  assert.equal(tail("checkout::routes::cart::{{closure}}"), "routes::cart::{{closure}}");
  assert.deepEqual(spellings("github.com/acme/shop/cart.(*Cart).Total").at(-1), "cart.(*Cart).Total");
});

test("names made to cost time are handled at once", () => {
  for (const part of ["{{x}}::", "<a as ", "a<b::", "::", "<<>::"]) {
    for (const name of [part.repeat(300), part.repeat(100_000), `<${part.repeat(250)}>::f`]) assert.ok(spellings(name)[0]!.length <= 2100);
  }
});

test("characters that deceive are shown as escapes", () => {
  assert.equal(printable("a\u202eb\u0007"), "a⟨202e⟩b⟨07⟩");
  assert.equal(printable("名前 🔥"), "名前 🔥");
});

test("origins: app, dependency, runtime, libc, kernel, unknown", () => {
  const of = (names: string[], services: string[] = []) => [...classify(names, services)].map((i) => ORIGINS[i]);
  assert.deepEqual(
    of(["checkout::main", "checkout::pricing::total", "<checkout::Cart as serde::Serialize>::serialize", "serde_json::to_vec", "<alloc::vec::Vec<T> as Drop>::drop", "tokio::runtime::park", "malloc", "__libc_start_main", "memcpy@plt", "entry_SYSCALL_64_after_hwframe", "libfoo.so+0x4f21", "0xdeadbeef", "[unknown]"]),
    ["app", "app", "app", "dependency", "runtime", "runtime", "libc", "libc", "libc", "kernel", "unknown", "unknown", "unknown"],
  );
  assert.deepEqual(of(["[jit code without a name]", "[script code without a name]", "[truncated]", "[exiting]"]), ["unknown", "unknown", "unknown", "kernel"]);
  assert.deepEqual(of(["__rustc::__rust_alloc", "pilotlight_unwind::walk::unwind"], ["checkout"]), ["runtime", "runtime"]);
  assert.deepEqual(of(["pilotlight_server::query::tree"], ["pilotlight"]), ["app"]);
  assert.deepEqual(of(["main.handle", "net/http.(*conn).serve", "runtime.mallocgc", "github.com/acme/lib.Do"]), ["app", "runtime", "runtime", "dependency"]);
  assert.deepEqual(of(["fold<u8, u64, checkout::hash::{closure#0}>", "{closure#0}"]), ["runtime", "runtime"]);
  const files = new Map([
    ["discounted", "/home/me/checkout/src/basket.rs"],
    ["wrapping_mul", "/rustc/5980/library/core/src/num/uint_macros.rs"],
    ["clone", "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde_path_to_error-0.1.20/src/lib.rs"],
    ["poll", "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/tokio-1.54.0/src/task.rs"],
    ["net/http.(*conn).serve", "/usr/local/go/src/net/http/server.go"],
    ["malloc", "../sysdeps/malloc.c"],
    ["measure<checkout::X>", "/home/me/checkout/src/truth.rs"],
    ["pilotlight::threads::run", "/home/me/pilotlight/sdk/src/threads.rs"],
  ]);
  assert.deepEqual([...classify([...files.keys()], [], files)].map((i) => ORIGINS[i]), ["app", "runtime", "dependency", "runtime", "runtime", "libc", "app", "runtime"]);
  assert.deepEqual(of(["my_shop::cart", "my_shop_core::x"], ["my-shop"]), ["app", "app"]);
});

test("C functions below a system call are the kernel's, others stay the C library's", () => {
  const { names, depth, name } = tree(["total 0 0", "send 1 0", "do_syscall_64 2 0", "tcp_sendmsg_locked 3 5", "memcpy 1 3"]);
  const origin = classify(names, []);
  markKernel(origin, depth, name);
  assert.deepEqual([...origin].slice(1).map((i) => ORIGINS[i]), ["libc", "kernel", "kernel", "libc"]);
});

test("a closure without a path has its caller's origin", () => {
  const { names, depth, name } = tree(["total 0 0", "tokio::run 1 0", "{async_fn#0} 2 1", "serde_json::x 1 0", "{closure#0} 2 1", "malloc 3 1"]);
  const nodes = spread(classify(names, []), names, depth, name);
  assert.deepEqual([...nodes].slice(1).map((i) => ORIGINS[i]), ["runtime", "runtime", "dependency", "dependency", "libc"]);
});

test("search is case-blind until a capital is typed, and bad patterns are taken as text", () => {
  assert.ok(compile("alloc")!.test("std::Alloc"));
  assert.ok(!compile("Alloc")!.test("std::alloc"));
  const bad = compile("vec[")!;
  assert.ok(bad.problem && bad.test("vec[u8]"));
  assert.equal(compile(""), null);
  for (const name of ["<a as b>::c{{x}}", "f(*T).g[0]", "a/b^$"]) {
    assert.ok(compile(exactly(name))!.test(name));
    assert.ok(!compile(exactly(name))!.test(`${name}x`));
  }
});

test("selectors read and write Prometheus' words", () => {
  const text = '{service_name="checkout",pod=~"a.*",zone!="b\\"c"}';
  assert.equal(formatSelector(parseSelector(text)), text);
  assert.deepEqual(parseSelector("{}"), []);
  assert.deepEqual(parseSelector("service_name=checkout"), [{ name: "service_name", op: "=", value: "checkout" }]);
  assert.throws(() => parseSelector('{a="b'), /add a quote/);
  assert.throws(() => parseSelector("{a}"), /expected =/);
  assert.throws(() => parseSelector('{a="b" c="d"}'), /comma/);
});

test("times are read as the API reads them", () => {
  const now = 1_800_000_000_000;
  assert.equal(parseTime("now", now), now);
  assert.equal(parseTime("now-15m", now), now - 900_000);
  for (const same of ["1700000000", "1700000000000", "1700000000000000000", "2023-11-14T22:13:20Z"]) assert.equal(parseTime(same, now), 1_700_000_000_000);
  assert.ok(Number.isNaN(parseTime("soon", now)));
  assert.deepEqual([1e3, 3600e3, 4000e3, 1e12, Number.NaN].map(nearestPreset), ["now-5m", "now-1h", "now-6h", "now-7d", "now-1h"]);
  assert.equal(formatSpan(3_725_000), "1 h 2 min");
});

test("values and percents have the digits that carry meaning", () => {
  assert.deepEqual([3.75e9, 1.2e6, 0, 90e9, 1].map((v) => formatValue(v, "nanoseconds")), ["3.75 s", "1.20 ms", "0 s", "1.50 min", "1 ns"]);
  assert.deepEqual([999.4e6, 999.6e6, 59.96e9, 3599e9, 999.7].map((v) => formatValue(v, "nanoseconds")), ["999 ms", "1.00 s", "1.00 min", "1.00 h", "1.00 µs"]);
  assert.deepEqual([1023, 1023.7, 1048575].map((v) => formatValue(v, "bytes")), ["1023 B", "1.00 KiB", "1.00 MiB"]);
  assert.deepEqual([1536, 0, 5e6].map((v) => formatValue(v, "bytes")), ["1.50 KiB", "0 B", "4.77 MiB"]);
  assert.deepEqual([0, 950, 12345].map((v) => formatValue(v, "count")), ["0", "950", "12.3 k"]);
  assert.deepEqual([0, 0.00001, 2.345, 37.5, 100].map((p) => formatPercent(p, 100)), ["0 %", "<0.01 %", "2.35 %", "37.5 %", "100 %"]);
  assert.equal(formatCount(1234567), "1\u202f234\u202f567");
});

test("a link carries the whole view and defaults stay out of it", () => {
  assert.equal(writeView(DEFAULT_VIEW), "?");
  const view = { ...DEFAULT_VIEW, type: "process_cpu:cpu:nanoseconds:cpu:nanoseconds", q: '{service_name="a&b",x=~"c+d %"}', from: "1", until: "2", view: "flame" as const, dir: "flame" as const, zoom: "<a as b>::c#d", search: "^a|b\\+$", sort: "-total", origin: "app" };
  assert.deepEqual(readView(writeView(view)), view);
  assert.equal(readView("?view=nonsense").view, "both");
});
