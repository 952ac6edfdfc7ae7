//! Small programs whose code has everything that debug information describes.

use std::path::PathBuf;
use std::process::Command;

pub const C_MAIN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int work(int n, const char *text);
static inline int twice(int x) { return x * 2; }
static inline __attribute__((always_inline)) int four(int x) { return twice(x) + twice(x ^ 1); }
static __attribute__((noinline)) int deep(int n) { return n ? four(deep(n - 1)) : 1; }
static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(int argc, char **argv) {
    int numbers[64];
    for (int i = 0; i < 64; i++) numbers[i] = four(i) % 17 + work(i, argv[0]);
    qsort(numbers, 64, sizeof *numbers, order);
    if (numbers[0] > 1000) abort();
    printf("%d %d\n", numbers[argc], deep(argc));
    return 0;
}
"#;

pub const C_WORK: &str = r#"
#include <string.h>
static inline int mix(int a, int b) { for (int i = 0; i < b; i++) { a = a * 31 + i; if (a & 1) a ^= b; } return a; }
static __attribute__((noinline)) int cold_part(const char *text, int n) {
    if (__builtin_expect(n < 0, 0)) { memset((void *)text, 0, 0); __builtin_trap(); }
    return mix(n, (int)strlen(text));
}
__attribute__((optimize("O3"))) static int unrolled(const int *v, int n) { int s = 0; for (int i = 0; i < n; i++) s += v[i] * mix(i, 3); return s; }
int work(int n, const char *text) {
    int v[16];
    for (int i = 0; i < 16; i++) v[i] = mix(i, n & 3);
    switch (n & 7) { case 0: return cold_part(text, n); case 1: return unrolled(v, 16); case 2: return mix(n, 9); default: return n; }
}
"#;

pub const CPP: &str = r#"
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
namespace shop {
template <class T> struct Stock {
    std::map<std::string, T> items;
    void add(const std::string &name, T n) { items[name] += n; }
    T sum() const { T all{}; for (auto &[k, v] : items) all += v; return all; }
    struct Inner { virtual ~Inner() = default; virtual T get(T x) { return x * 3; } };
};
struct Other : Stock<double>::Inner { double get(double x) override { return x / 2; } };
}
static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(int c, char **) {
    shop::Stock<double> stock;
    std::vector<int> x;
    std::function<int(int)> f = [&](int i) { return fib(i % 20) + c; };
    for (int i = 0; i < c * 100; i++) { x.push_back(f(i)); stock.add(std::to_string(i), i); }
    std::sort(x.begin(), x.end(), [](int a, int b) { return a > b; });
    try { if (x.at(c) < 0) throw std::runtime_error("negative"); } catch (const std::exception &e) { puts(e.what()); }
    shop::Other other;
    std::printf("%d %f %f\n", x[c], stock.sum(), other.get(c));
}
"#;

pub const RUST: &str = r#"
use std::collections::{BTreeMap, HashMap};
trait Shape { fn area(&self) -> f64; }
struct Circle(f64);
struct Square(f64);
impl Shape for Circle { fn area(&self) -> f64 { self.0 * self.0 * 3.14 } }
impl Shape for Square { fn area(&self) -> f64 { self.0 * self.0 } }
mod nested { pub fn generic<T: std::fmt::Debug + Clone>(v: &[T]) -> String { v.iter().cloned().map(|x| format!("{x:?}")).collect::<Vec<_>>().join(",") } }
fn main() {
    let count = std::env::args().count();
    let mut words: HashMap<String, usize> = HashMap::new();
    for i in 0..1000 * count { *words.entry(format!("w{}", i % 97)).or_default() += i; }
    let sorted: BTreeMap<_, _> = words.iter().map(|(k, v)| (v, k)).collect();
    let shapes: Vec<Box<dyn Shape>> = (0..count).map(|i| if i % 2 == 0 { Box::new(Circle(i as f64)) as Box<dyn Shape> } else { Box::new(Square(i as f64)) }).collect();
    let mut areas: Vec<f64> = shapes.iter().map(|s| s.area()).collect();
    areas.sort_by(|a, b| b.partial_cmp(a).unwrap());
    let thread = std::thread::spawn(move || nested::generic(&areas));
    println!("{} {:?} {}", sorted.len(), sorted.iter().next(), thread.join().unwrap());
}
"#;

pub const GO: &str = r#"
package main

import (
	"fmt"
	"sort"
	"strings"
)

type shape interface{ area() float64 }
type circle struct{ r float64 }

func (c *circle) area() float64 { return c.r * c.r * 3.14 }

func small(x int) int { return x*3 + 1 }
func middle(x int) int { return small(x) + small(x+1) }

func largest[T int | float64](v []T) T {
	best := v[0]
	for _, x := range v {
		if x > best {
			best = x
		}
	}
	return best
}

func main() {
	words := map[string]int{}
	for i := 0; i < 1000; i++ {
		words[fmt.Sprint("w", i%97)] += middle(i)
	}
	keys := make([]string, 0, len(words))
	for k := range words {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return words[keys[i]] < words[keys[j]] })
	var s shape = &circle{2}
	fmt.Println(strings.Join(keys[:3], ","), s.area(), largest([]int{1, 3, 2}))
}
"#;

/// A folder that is removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("pilotlight-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    /// Writes files; their paths.
    pub fn write(&self, files: &[(&str, &str)]) -> Vec<String> {
        let write = |(name, text): &(&str, &str)| {
            let path = self.path(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        files.iter().map(write).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn works(program: &str) -> bool {
    let argument = if program == "go" {
        "version"
    } else {
        "--version"
    };
    let output = Command::new(program).arg(argument).output();
    output.is_ok_and(|o| o.status.success())
}

pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
}
