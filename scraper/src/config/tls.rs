//! `tls_config`.

use super::reader::Section;
use pilotlight_wire::TlsClient;
use std::path::Path;

/// `tls_config` of a section, in Prometheus' words; files are relative to `folder`.
pub fn read_tls(job: &mut Section, folder: &Path) -> TlsClient {
    let problems = job.problems();
    let Some(value) = job.value("tls_config") else {
        return TlsClient::default();
    };
    let mut section = Section::new(format!("{}.tls_config", job.place()), value, problems);
    let mut file = |key| section.text(key).map(|file| folder.join(file));
    let (ca_file, cert_file, key_file) = (file("ca_file"), file("cert_file"), file("key_file"));
    if cert_file.is_some() != key_file.is_some() {
        section.problem("cert_file", "give cert_file and key_file, or neither");
    }
    let tls = TlsClient {
        ca_file,
        cert_file,
        key_file,
        server_name: section.text("server_name"),
        insecure_skip_verify: section.truth("insecure_skip_verify").unwrap_or(false),
    };
    section.finish(|key| match key {
        "ca" | "cert" | "key" => {
            Some("write it to a file and name that: ca_file, cert_file, key_file".to_owned())
        }
        "min_version" | "max_version" => Some("TLS 1.2 and 1.3 are spoken; remove it".to_owned()),
        _ => None,
    });
    tls
}
