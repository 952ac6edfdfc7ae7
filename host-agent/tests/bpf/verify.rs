//! Walks in the kernel, held against walks in user space of the same samples.

use super::victim::{self, Victim};
use super::*;
use pilotlight_agent_bpf::{Engine, Mapping, Options};
use pilotlight_host_agent::verify::{Verdict, verdict};
use pilotlight_unwind::{Kind, Modules, Table};

/// What a share of one in a hundred is told from.
const ENOUGH: u64 = 400;

#[test]
fn samples_that_are_walked_twice_lead_to_the_same_place() {
    victim::serve();
    if skip() {
        return;
    }
    let name = "verify::samples_that_are_walked_twice_lead_to_the_same_place";
    let victim = Victim::start(name, "mixed");
    let options = SamplerOptions {
        frequency_hz: 497,
        pids: vec![victim.pid()],
        verify: 0.5,
        ..SamplerOptions::default()
    };
    let mut sampler = BpfSampler::start(&options, Arc::new(Processes::new())).unwrap();
    let (mut met, mut samples) = (Losses::default(), 0);
    let all = |met: &Losses| met.of("verified_same") + met.of("verified_different");
    let until = Instant::now() + Duration::from_secs(60);
    while all(&met) < ENOUGH && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(200));
        let batch = sampler.drain().unwrap();
        met.merge(&batch.met);
        samples += batch.samples.iter().map(|s| s.count).sum::<u64>();
    }
    println!("{met:?} of {samples} samples");
    assert!(all(&met) >= ENOUGH, "{met:?}");
    assert!(met.of("verified_different") * 100 <= all(&met), "{met:?}");
    // About every second one; the first ones are walked here alone.
    assert!(all(&met) * 4 <= samples * 3, "{met:?} of {samples}");
}

/// Where the stack pointer was is wrong in all rules that count from it.
fn damaged(table: &Table) -> Table {
    let mut bytes = Vec::new();
    table.save(&mut bytes);
    let first = bytes.len() - table.rules().len() * RULE_BYTES;
    for rule in bytes[first..].chunks_exact_mut(RULE_BYTES) {
        if rule[0] == Kind::Sp as u8 {
            let cfa = i32::from_le_bytes(rule[4..8].try_into().unwrap());
            rule[4..8].copy_from_slice(&(cfa + 16).to_le_bytes());
        }
    }
    Table::load(&bytes).unwrap()
}

const RULE_BYTES: usize = 12;

/// Verdicts on one process, whose tables in the kernel are what `table` makes of them.
fn verdicts(pid: u32, modules: &Modules, table: impl Fn(&Table) -> Table) -> (u64, u64) {
    let mut engine = Engine::load(&Options {
        event: pilotlight_agent_bpf::Event::clock(497),
        only_pid: Some(pid),
        verify: 1.0,
        ..Options::default()
    })
    .unwrap();
    let mut mappings = Vec::new();
    for module in modules.iter() {
        mappings.push(Mapping {
            start: module.start_avma,
            end: module.end_avma,
            image_base: module.image_base(),
            file: engine.tables().add_file(&table(&module.table)).unwrap(),
        });
    }
    assert!(engine.tables().set_process(pid, 1, &mappings).unwrap());
    engine.attach().unwrap();
    let (mut same, mut different) = (0, 0);
    let until = Instant::now() + Duration::from_secs(60);
    while same + different < ENOUGH && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        engine.raw();
        for check in engine.checks() {
            match verdict(&check, modules) {
                Verdict::Same => same += 1,
                Verdict::Different => different += 1,
                Verdict::Unknown => {}
            }
        }
    }
    println!("{same} same, {different} different");
    assert!(same + different >= ENOUGH);
    (same, different)
}

#[test]
fn a_damaged_table_is_seen_by_walking_twice() {
    victim::serve();
    if skip() {
        return;
    }
    let victim = Victim::start("verify::a_damaged_table_is_seen_by_walking_twice", "hot");
    let processes = Processes::new();
    // The loader maps libraries one after the other: it runs once libc is there and nothing more comes.
    let mut before = 0;
    loop {
        let mappings = processes.current(victim.pid()).map(|p| p.mappings.clone());
        let mappings = mappings.unwrap_or_default();
        let is_libc = |m: &pilotlight_host_agent::process::Mapping| m.path.ends_with(b"/libc.so.6");
        if mappings.len() == before && mappings.iter().any(is_libc) {
            break;
        }
        before = mappings.len();
        std::thread::sleep(Duration::from_millis(20));
        processes.exited(victim.pid());
    }
    let modules = processes.modules(victim.pid()).unwrap();
    let whole = |table: &Table| {
        let mut bytes = Vec::new();
        table.save(&mut bytes);
        Table::load(&bytes).unwrap()
    };
    let (same, different) = verdicts(victim.pid(), &modules, whole);
    assert!(
        different * 100 <= same + different,
        "{same} same, {different} different"
    );
    let (same, different) = verdicts(victim.pid(), &modules, damaged);
    assert!(different > same, "{same} same, {different} different");
}
