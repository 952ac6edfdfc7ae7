//! Debug files whose DWARF stands in a file that several share (`dwz`).

use pilotlight_server::Config;

use super::*;

const NAMED: [&str; 4] = ["", "main", "leaf", "square"];

/// A debug file of the program, and the file that it shares with one of another program.
struct Shared {
    debug: PathBuf,
    shared: PathBuf,
    shared_id: String,
}

/// `None` where there is no dwz.
fn shared(folder: &Path, built: &Built) -> Option<Shared> {
    if Command::new("dwz").arg("--version").output().is_err() {
        println!("SKIP: dwz is not installed (Debian's package dwz)");
        return None;
    }
    let other = SOURCE.replace("+ 1", "+ 2");
    let other = build(&folder.join("other"), &other);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (debug, shared) = (folder.join("app.shared.debug"), folder.join("shared"));
    std::fs::copy(&built.debug, &debug).unwrap();
    let (m, one, two) = (text(&shared), text(&debug), text(&other.debug));
    let place = "/usr/lib/debug/.dwz/x86_64/app.debug";
    tool("dwz", &["-m", &m, "-M", place, &one, &two]);
    let shared_id = describe(&shared).unwrap().build_id;
    Some(Shared {
        debug,
        shared,
        shared_id,
    })
}

fn pushed(config: Config, built: &Built) -> Local {
    let server = Local::start(config);
    let profile = addresses(built, &built.build_id);
    let pushed = push(server.address, r#"{service_name="s"}"#, &profile);
    assert_eq!(pushed.status, 200);
    server
}

/// The program's file as the API lists it.
fn listed(address: SocketAddr, built: &Built) -> Value {
    let files = get(address, "/api/v1/debuginfo/files").json();
    let files = files["files"].as_array().unwrap().iter();
    let of = |file: &&Value| file["build_ids"][0] == built.build_id;
    files.clone().find(of).unwrap().clone()
}

#[test]
fn names_in_a_shared_file_are_missing_with_a_reason_until_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(&folder.path().join("1"), SOURCE);
    let Some(files) = shared(folder.path(), &built) else {
        return;
    };
    let server = pushed(config(&folder.path().join("data")), &built);
    let at = server.address;
    assert_eq!(upload(at, &files.debug)["quality"], "split");
    let (square, _) = offsets(&built);
    let nameless = format!("app[no-shared-debuginfo]+{square:#x}");
    let partly = ["", "main", "leaf", &nameless];
    wait_for("what it names by itself", || names(at) == partly);
    let binary = missing(at)["binaries"][0].clone();
    assert_eq!(binary["reason"], "no-shared-debuginfo", "{binary}");
    assert_eq!(binary["frames"], 1);
    assert_eq!(binary["value"], 3 * SECOND);
    let wanted = json!({
        "build_id": files.shared_id,
        "path": "/usr/lib/debug/.dwz/x86_64/app.debug",
        "stored": false,
    });
    assert_eq!(listed(at, &built)["shared"], wanted);

    assert_eq!(upload(at, &files.shared)["state"], "stored");
    wait_for("all names", || names(at) == NAMED);
    assert_eq!(missing(at)["binaries"], json!([]));
    assert_eq!(listed(at, &built)["shared"]["stored"], true);
    server.stop();
    let server = Local::start(config(&folder.path().join("data")));
    wait_for("all names after a restart", || {
        names(server.address) == NAMED
    });
    server.stop();
}

#[test]
fn a_shared_file_is_looked_for_where_nobody_sent_it() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(&folder.path().join("1"), SOURCE);
    let Some(files) = shared(folder.path(), &built) else {
        return;
    };
    // On this machine as distributions lay it out.
    let debug = folder.path().join("debug");
    let place = debug.join(".dwz/x86_64/app.debug");
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::copy(&files.shared, &place).unwrap();
    let mut own = config(&folder.path().join("folders"));
    own.debuginfo.sources.folders = vec![debug];
    let server = pushed(own, &built);
    assert_eq!(upload(server.address, &files.debug)["quality"], "split");
    wait_for("names from a folder", || names(server.address) == NAMED);
    server.stop();

    // By its build id from another server.
    let peer = Local::start(config(&folder.path().join("peer")));
    for file in [&files.debug, &files.shared] {
        assert_eq!(upload(peer.address, file)["state"], "stored");
    }
    let mut own = config(&folder.path().join("asks"));
    sources::asking(&mut own, peer.address);
    let server = pushed(own, &built);
    wait_for("names from debuginfod", || names(server.address) == NAMED);
    server.stop();
    peer.stop();
}

#[test]
fn a_damaged_shared_file_costs_only_its_own_names() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(&folder.path().join("1"), SOURCE);
    let Some(files) = shared(folder.path(), &built) else {
        return;
    };
    // Its sections are noise; headers and build id stay.
    let mut bytes = std::fs::read(&files.shared).unwrap();
    let header_and_note = 0x64;
    let sections = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap());
    bytes[header_and_note..sections as usize].fill(0xff);
    std::fs::write(&files.shared, bytes).unwrap();
    let server = pushed(config(&folder.path().join("data")), &built);
    let at = server.address;
    upload(at, &files.shared);
    assert_eq!(upload(at, &files.debug)["quality"], "split");
    let outer = ["", "main", "leaf"];
    wait_for("its own names", || {
        names(at).starts_with(&outer.map(str::to_owned))
    });
    assert_eq!(listed(at, &built)["failed"], Value::Null);
    server.stop();
}
