//! An unmodified Go program with net/http/pprof, scraped for real.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions

mod common;

use common::{Peer, ok, options, run};
use pilotlight_profile::{Limits, Mode, decode, top};
use pilotlight_scraper::{ScrapeConfig, Scraper};
use pilotlight_tests::process::{Scratch, go_build};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(folder: &std::path::Path) -> (Program, String) {
    let program = go_build("../scraper/tests/go", folder);
    let mut child = Command::new(program)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut address)
        .unwrap();
    (Program(child), address.trim().to_owned())
}

#[test]
fn its_busy_function_arrives_at_the_server() {
    let scratch = Scratch::new("scraped-go");
    let (_program, address) = start(scratch.path());
    run(async {
        let server = Peer::start(|_, _| ok(b"{}".to_vec())).await;
        let job = ScrapeConfig::new("busy", &[&address]).every(Duration::from_secs(2));
        let handle = Scraper::start(vec![job], options(server.url()));
        let pushed = server.until(1).await.remove(0);
        handle.stop(Duration::from_secs(1)).await;
        let profile = decode(&pushed.body, Mode::Strict, &Limits::default())
            .unwrap()
            .profile;
        let cpu = profile.value_index(Some("cpu")).unwrap();
        let total = profile.total(cpu);
        // A busy loop of one second, on a machine that may have little time for it.
        assert!((100_000_000..1_500_000_000).contains(&total), "{total} ns");
        let rows = top(&profile, cpu);
        let spin = rows
            .iter()
            .find(|row| row.name == "main.spinForTheProfiler")
            .unwrap();
        assert!(
            spin.total_value * 10 >= total * 8,
            "{} of {total}",
            spin.total_value
        );
    });
}
