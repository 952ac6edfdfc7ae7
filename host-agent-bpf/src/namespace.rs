//! How deep in pid namespaces the agent itself is: processes are known by their numbers there.

/// 0 in the machine's first pid namespace.
pub fn own_pid_level() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    levels(&status).saturating_sub(1)
}

/// `NSpid:` lists a number for each namespace *below the one that /proc belongs to*, the agent's own included.
fn levels(status: &str) -> u32 {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.map_or(1, |numbers| numbers.split_whitespace().count() as u32)
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_number_is_the_first_namespace() {
        assert_eq!(super::levels("Name:\tx\nNSpid:\t12\nThreads:\t1\n"), 1);
        assert_eq!(super::levels("NSpid:\t900\t12\n"), 2);
        assert_eq!(super::levels(""), 1);
    }
}
