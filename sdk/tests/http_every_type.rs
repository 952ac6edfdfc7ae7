//! Every type of profile that this build has, as `go tool pprof` reads it. A new type is covered as
//! soon as it is registered: when this test cannot make it show something, `work` needs a line more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod http_support;

use std::hint::black_box;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http_support::{Scratch, get, go_tool_pprof, server};
use pilotlight::{Kind, ProfileType, SpanExt, State};

#[global_allocator]
static ALLOCATOR: pilotlight::Alloc<std::alloc::System> =
    pilotlight::Alloc::new(std::alloc::System);

static LOCK: Mutex<u64> = Mutex::new(0);

/// Burns, allocates, waits for a lock, waits in a span, and starts threads, all the time.
fn work(stop: &AtomicBool) {
    let runs = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut kept: Vec<Vec<u8>> = Vec::new();
                while runs() {
                    let mut held = LOCK.lock().unwrap();
                    let until = Instant::now() + Duration::from_millis(3);
                    while Instant::now() < until {
                        *held = black_box(held.wrapping_mul(31) + 7);
                    }
                    drop(held);
                    kept.push(black_box(vec![1; 64 << 10]));
                    if kept.len() > 64 {
                        kept.clear();
                    }
                }
            });
        }
        scope.spawn(|| {
            while runs() {
                std::thread::scope(|inner| {
                    inner.spawn(|| std::thread::sleep(Duration::from_millis(5)));
                });
            }
        });
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            runtime.unwrap().block_on(async {
                while runs() {
                    tokio::time::sleep(Duration::from_millis(5))
                        .span("nap")
                        .await;
                }
            });
        });
    });
}

/// Switches on what is off; how, the type itself says.
fn switch_on(ty: &ProfileType) {
    if ty.state != State::On {
        pilotlight::set_enabled(ty.name, true)
            .unwrap_or_else(|why| panic!("{} is {:?}: {why}", ty.name, ty.state));
    }
}

fn query(ty: &ProfileType) -> &'static str {
    match ty.kind {
        Kind::Window => "?seconds=2",
        _ => "",
    }
}

#[test]
fn go_tool_pprof_reads_every_type() {
    let config = pilotlight::Config::new("every-type").no_listener();
    let _guard = config.heap_interval_bytes(64 << 10).start().unwrap();
    let ours = server(|_| {});
    let address = ours.address();
    let types = pilotlight::profile_types();
    let types: Vec<&ProfileType> = types.iter().filter(|ty| ty.kind != Kind::Text).collect();
    types.iter().for_each(|ty| switch_on(ty));
    let names: Vec<&str> = types.iter().map(|ty| ty.name).collect();
    assert!(
        names.contains(&"profile") && names.contains(&"heap"),
        "{names:?}"
    );
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| work(&stop));
        // Something to show of what is counted.
        std::thread::sleep(Duration::from_millis(1500));
        let failed: Vec<String> = {
            let read = |ty: &ProfileType| {
                let scratch = Scratch::new(&format!("every-{}", ty.name));
                let result = std::panic::catch_unwind(|| read(address, ty, &scratch.0));
                result.err().map(|_| ty.name.to_string())
            };
            let readers: Vec<_> = types
                .iter()
                .map(|ty| scope.spawn(move || read(ty)))
                .collect();
            readers
                .into_iter()
                .filter_map(|reader| reader.join().unwrap())
                .collect()
        };
        stop.store(true, Ordering::Relaxed);
        assert!(failed.is_empty(), "{failed:?}");
    });
}

/// All ways of reading one type.
fn read(address: SocketAddr, ty: &ProfileType, scratch: &Path) {
    let url = format!("http://{address}/debug/pprof/{}{}", ty.name, query(ty));
    let file = scratch.join("profile.pb.gz");
    let file = file.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let output = go_tool_pprof(arguments);
        output.unwrap_or_else(|error| panic!("{}: go tool pprof {arguments:?}: {error}", ty.name))
    };
    run(&["-proto", "-output", file, &url]);
    let raw = run(&["-raw", &url]);
    assert!(
        raw.contains("Samples:") && raw.contains("Mappings"),
        "{}: {raw}",
        ty.name
    );
    let top = run(&["-top", file]);
    assert!(top.contains("flat%"), "{}: {top}", ty.name);
    let rows = top
        .lines()
        .skip_while(|line| !line.contains("flat%"))
        .skip(1);
    assert!(rows.count() > 0, "{} is empty: {top}", ty.name);
    assert!(
        run(&["-traces", file]).contains("-----------+"),
        "{}",
        ty.name
    );
    // A profile less itself is nothing.
    let same = run(&["-top", "-base", file, file]);
    assert!(
        same.contains(" 0 of 0 total") || same.contains("of 0 total"),
        "{}: {same}",
        ty.name
    );
    if matches!(ty.kind, Kind::Cumulative { .. }) {
        let delta = run(&["-raw", "-seconds", "1", &url]);
        assert!(delta.contains("Duration: 1"), "{}: {delta}", ty.name);
        // Go's text forms, which the tool reads too.
        let text = format!("{url}?debug=1");
        assert!(run(&["-top", &text]).contains("flat%"), "{}", ty.name);
    }
    flame_page(ty, file);
}

/// `go tool pprof -http` shows the profile in the browser.
fn flame_page(ty: &ProfileType, file: &str) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    // The tool itself, not `go`, whose child would stay.
    let tool = Command::new("go")
        .args(["tool", "-n", "pprof"])
        .output()
        .unwrap();
    let tool = String::from_utf8(tool.stdout).unwrap();
    let mut child = Command::new(tool.trim())
        .args(["-no_browser", "-http", &address.to_string(), file])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::net::TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "{}: no page", ty.name);
        std::thread::sleep(Duration::from_millis(20));
    }
    let page = get(address, "/ui/flamegraph");
    let _ = child.kill();
    let _ = child.wait();
    let mut said = String::new();
    let _ = child.stderr.take().unwrap().read_to_string(&mut said);
    assert_eq!(page.status, 200, "{}: {said}", ty.name);
    let text = page.text();
    assert!(text.contains("stack-holder"), "{}: {said}{text}", ty.name);
}

#[test]
fn the_index_says_of_each_type_what_it_is_whether_it_is_on_and_what_it_costs() {
    let config = pilotlight::Config::new("every-type").no_listener();
    let _guard = config.allow_http_switch(true).start().unwrap();
    let ours = server(|_| {});
    let page = get(ours.address(), "/debug/pprof/").text();
    for ty in pilotlight::profile_types() {
        let link = format!("<a href='{0}?debug=1'>{0}</a></td><td>", ty.name);
        let row = page.lines().find(|line| line.contains(&link));
        let row = row.unwrap_or_else(|| panic!("no {} in {page}", ty.name));
        match &ty.state {
            State::On => assert!(row.contains("</td><td>on</td><td>"), "{row}"),
            _ => assert!(
                row.contains("off: ") && row.contains("to switch it on: "),
                "{row}"
            ),
        }
        assert!(!ty.cost.is_empty() && !ty.description.is_empty(), "{ty:?}");
        assert_eq!(row.contains("<form"), ty.kind != Kind::Text, "{row}");
        if ty.kind == Kind::Text {
            continue;
        }
        // Off by HTTP and by the program, and on again.
        let switch = |on: u8| {
            let target = format!("/debug/pprof/{}?enable={on}", ty.name);
            http_support::request(ours.address(), "POST", &target, b"")
        };
        let off = switch(0);
        assert_eq!(
            (
                off.status,
                off.text().starts_with(&format!("{} is off", ty.name))
            ),
            (200, true),
            "{}: {}",
            ty.name,
            off.text()
        );
        let refused = get(
            ours.address(),
            &format!("/debug/pprof/{}?seconds=1", ty.name),
        );
        assert!(
            refused.status >= 400,
            "{} answers {} while off",
            ty.name,
            refused.status
        );
        let on = switch(1);
        assert_eq!(
            (on.status, on.text()),
            (200, format!("{} is on\n", ty.name))
        );
    }
}
