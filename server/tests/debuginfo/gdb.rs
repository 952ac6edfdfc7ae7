//! A real debugger finds here what was sent.

use super::*;

#[test]
fn gdb_finds_lines_of_a_stripped_program_by_debuginfod() {
    let gdb = Command::new("gdb")
        .args(["-nx", "-batch", "-ex", "help set debuginfod"])
        .output();
    let usable =
        gdb.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("enabled"));
    if !usable {
        eprintln!("skipped: there is no gdb with debuginfod here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let built = build(folder.path(), SOURCE);
    let server = Local::start(config(&folder.path().join("data")));
    assert_eq!(upload(server.address, &built.debug)["state"], "stored");
    let ask = || {
        let output = Command::new("gdb")
            .args(["-nx", "-batch", "-ex", "set debuginfod enabled on"])
            .arg("-ex")
            .arg(format!("file {}", built.stripped.display()))
            .args(["-ex", "info line leaf"])
            .env("DEBUGINFOD_URLS", format!("http://{}", server.address))
            .env("DEBUGINFOD_CACHE_PATH", folder.path().join("cache"))
            .env("DEBUGINFOD_TIMEOUT", "60")
            .output();
        let output = output.unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = ask();
    assert!(
        said.contains("<leaf>") && said.contains("app.c\""),
        "{said}"
    );
    server.stop();
}
