//! The verbs against a server with TLS and tokens.

use super::*;

fn tls(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/tls");
    folder.join(name).to_str().unwrap().to_owned()
}

/// A fresh token, and its hash.
fn token(folder: &Path) -> (String, String) {
    let arguments = [
        "token",
        "--name",
        "up",
        "--scope",
        "debuginfo",
        "--scope",
        "read",
    ];
    let made = run(folder, &arguments);
    let (out, err) = (text(&made.stdout), text(&made.stderr));
    let hash = err.split("sha256: ").nth(1).unwrap();
    (
        out.trim().to_owned(),
        hash.split_whitespace().next().unwrap().to_owned(),
    )
}

#[test]
fn debug_information_is_sent_over_tls_with_a_token_and_a_wrong_authority_is_named() {
    let scratch = Scratch::new("secure");
    let folder = scratch.path();
    let port = free_port();
    let (listen, server) = (
        format!("127.0.0.1:{port}"),
        format!("https://localhost:{port}"),
    );
    std::fs::write(folder.join("app.c"), "int main(void) { return 0; }\n").unwrap();
    let built = std::process::Command::new("cc")
        .args(["-g", "-Wl,--build-id=sha1", "-o", "app", "app.c"])
        .current_dir(folder)
        .status();
    assert!(built.unwrap().success());
    let (secret, hash) = token(folder);
    std::fs::write(folder.join("secret"), &secret).unwrap();
    let config = format!(
        "server:\n  access:\n    tokens:\n      - {{name: up, sha256: {hash}, scopes: [debuginfo, read]}}\n  \
         tls: {{cert_file: {}, key_file: {}}}\n",
        tls("first.pem"),
        tls("first.key")
    );
    std::fs::write(folder.join("pl.yaml"), config).unwrap();
    let arguments = [
        "server", "--config", "pl.yaml", "--listen", &listen, "--data", "d",
    ];
    let running = Running::start(folder, &arguments);
    let asked = |arguments: &[&str], authority: &str, token: &[&str]| {
        let ca = ["--server", &server, "--ca-file", authority];
        run(folder, &[arguments, &ca, token].concat())
    };
    let (authority, shown) = (tls("authority.pem"), ["--token-file", "secret"]);
    wait_for("ready", PATIENCE, || {
        let output = asked(&["debuginfo", "list"], &authority, &shown);
        output
            .status
            .success()
            .then_some(())
            .ok_or_else(|| text(&output.stderr))
    });
    let upload = ["debuginfo", "upload", "app"];

    let wrong = asked(&upload, &tls("client.pem"), &shown);
    let err = text(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(1), "{err}");
    assert!(
        err.contains("certificate") && err.contains("--ca-file"),
        "{err}"
    );
    let gone = asked(&upload, "gone.pem", &shown);
    let err = text(&gone.stderr);
    assert!(!gone.status.success() && err.contains("gone.pem"), "{err}");
    let unknown = asked(&upload, &authority, &[]);
    let err = text(&unknown.stderr);
    assert!(!unknown.status.success() && err.contains("token"), "{err}");

    let sent = asked(&upload, &authority, &shown);
    let (out, err) = (text(&sent.stdout), text(&sent.stderr));
    assert!(sent.status.success(), "{err}");
    assert!(out.starts_with("stored      dwarf "), "{out}");
    let list = asked(&["debuginfo", "list"], &authority, &shown);
    assert!(
        text(&list.stdout).contains(" app ("),
        "{}",
        text(&list.stdout)
    );
    let (output, _) = running.stop("-TERM");
    assert!(output.status.success());
}
