//! Chosen environment variables of processes.

use super::proc;
use crate::limits;

/// Values that a process was started with, under the names of labels; the first of a name counts.
pub fn read_variables(pid: u32, wanted: &[(String, String)]) -> Vec<(String, String)> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let environ = proc::read(pid, "environ", limits::ENVIRON_BYTES).unwrap_or_default();
    chosen(&environ, wanted)
}

fn chosen(environ: &[u8], wanted: &[(String, String)]) -> Vec<(String, String)> {
    let value = |(variable, label): &(String, String)| {
        let mut entries = environ.split(|&byte| byte == 0);
        let found = entries.find_map(|entry| {
            let rest = entry.strip_prefix(variable.as_bytes())?;
            rest.strip_prefix(b"=")
        })?;
        Some((label.clone(), crate::labels::text(found)))
    };
    wanted.iter().filter_map(value).collect()
}

/// Any bytes as an environment.
pub(super) fn hostile(input: &[u8]) {
    let pair = |name: &str| (name.to_owned(), name.to_lowercase());
    let found = chosen(input, &[pair("POD_NAME"), pair("ZONE")]);
    assert!(found.len() <= 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chosen_variables_are_taken_and_hostile_values_are_bounded() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let wanted = [
            pair("POD_NAME", "pod"),
            pair("ZONE", "zone"),
            pair("X", "x"),
        ];
        let long = [b"X=".to_vec(), vec![b'a'; 10_000]].concat();
        let environ = [
            &b"POD_NAME_2=no\0POD_NAME=web-1\0SECRET=s\0=\0ZONE=a\nb\0ZONE=c\0"[..],
            &long,
        ]
        .concat();
        let found = chosen(&environ, &wanted);
        assert_eq!(
            found[..2],
            [pair("pod", "web-1"), pair("zone", "a\u{fffd}b")]
        );
        assert_eq!(found[2].1.len(), 256);
        assert_eq!(chosen(b"", &wanted), []);
        assert_eq!(read_variables(std::process::id(), &[]), []);
    }
}
