//! Generated profiles, so that the part also says something where no corpus is.

use super::corpus::File;
use crate::generator::Service;

const SECOND: i64 = 1_000_000_000;

/// Twelve profiles of three services of different size.
pub fn files() -> Vec<File> {
    let sizes = [
        (400, 600, 3_000),
        (1_500, 4_000, 12_000),
        (4_000, 12_000, 60_000),
    ];
    let mut files = Vec::new();
    for (seed, (functions, stacks, samples)) in sizes.into_iter().enumerate() {
        let mut service = Service::new(seed as u64, functions, stacks);
        for at in 0..4 {
            let raw = service.profile(samples, at * 10 * SECOND, 10 * SECOND);
            let name = format!("{:03}.pb", files.len());
            files.push(File {
                source: format!("generated {name}"),
                name,
                raw,
            });
        }
    }
    files
}
