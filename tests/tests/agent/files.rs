//! Files that are no longer, or not as they seem.

use super::*;

#[test]
fn programs_whose_files_were_deleted_or_replaced_while_they_run_are_named() {
    let scratch = Scratch::new("agent-deleted");
    let start = |name: &str| {
        let program = hot_in_cpp(&scratch, name);
        let running = Program::start(name, scratch.path(), &mut Command::new(&program));
        // Not before it runs: the file is mapped then.
        let exe = format!("/proc/{}/exe", running.id());
        wait_for(name, Duration::from_secs(20), || {
            let runs = std::fs::read_link(&exe).is_ok_and(|exe| exe.ends_with(name));
            runs.then_some(()).ok_or(exe.clone())
        });
        (program, running)
    };
    let (deleted, deleted_runs) = start("hot-deleted");
    std::fs::remove_file(&deleted).unwrap();
    let (replaced, replaced_runs) = start("hot-replaced");
    // An upgrade: another file takes the name.
    let other = scratch.path().join("other");
    std::fs::copy("/bin/true", &other).unwrap();
    std::fs::rename(&other, &replaced).unwrap();
    let pair = profile(&scratch, &[deleted_runs.id(), replaced_runs.id()]);
    is_hot(pair.port, "hot-deleted", "hot_in_cpp", 0.8);
    is_hot(pair.port, "hot-replaced", "hot_in_cpp", 0.8);
}

#[test]
fn a_program_in_an_overlay_and_namespaces_of_its_own_is_named() {
    let scratch = Scratch::new("agent-overlay");
    let program = hot_in_cpp(&scratch, "hot-overlay");
    let folder = |name: &str| {
        let folder = scratch.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    let (lower, _upper, _work, _merged) = (folder("l"), folder("u"), folder("w"), folder("m"));
    std::fs::rename(&program, lower.join("hot-overlay")).unwrap();
    let mount = "mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w m";
    let mut unshare = Command::new("unshare");
    unshare
        .args(["-Urmpf", "sh", "-c"])
        .current_dir(scratch.path());
    unshare.arg(format!("{mount} || exit 77; m/hot-overlay & wait"));
    let outer = Program::start("overlay", scratch.path(), &mut unshare);
    // Below unshare and its shell.
    let found = wait_for("the program", Duration::from_secs(20), || {
        let ended = parent_of(outer.id()).is_none();
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_it = |&pid: &u32| {
            let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
            let grandparent = parent_of(pid).and_then(parent_of);
            grandparent == Some(outer.id()) && exe.is_ok_and(|exe| exe.ends_with("hot-overlay"))
        };
        let found = pids.find(is_it);
        (found.is_some() || ended)
            .then_some(found)
            .ok_or(outer.output())
    });
    let Some(pid) = found else {
        println!("SKIP: no overlay may be mounted here: {}", outer.output());
        return;
    };
    let pair = profile(&scratch, &[pid]);
    is_hot(pair.port, "hot-overlay", "hot_in_cpp", 0.8);
}

/// From `/proc/PID/stat`; `None` when it has ended.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?;
    fields.next()?.parse().ok().filter(|_| state != "Z")
}
