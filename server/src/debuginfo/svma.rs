//! Addresses of a process to addresses of a file.

use pilotlight_symbolize::Segment;

use crate::segment::Mapping;

const PAGE: u64 = 4096;

/// Where in its file's own terms an address of a mapping stands.
///
/// `exact`: whether the file offsets of `segments` are those of the file that ran. In files that
/// hold debug information only they are not.
pub fn svma(segments: &[Segment], exact: bool, mapping: &Mapping, address: u64) -> Option<u64> {
    // The sender has subtracted the load address itself.
    if mapping.start == 0 && mapping.limit == 0 {
        return Some(address);
    }
    let inside = address.wrapping_sub(mapping.start);
    if exact {
        let offset = inside.wrapping_add(mapping.offset);
        let holds = |s: &&Segment| s.svma_of(offset).is_some();
        let mut found = segments.iter().filter(holds);
        let first = found.clone().find(|s| s.executable);
        let segment = first.or_else(|| found.next())?;
        return segment.svma_of(offset);
    }
    // The mapping of an executable segment begins with the page in which the segment begins.
    let size = mapping.limit.wrapping_sub(mapping.start);
    let pages = |s: &Segment| {
        let begin = s.svma & !(PAGE - 1);
        (
            begin,
            page_end(s.svma.wrapping_add(s.memory_size)).wrapping_sub(begin),
        )
    };
    let code = || segments.iter().filter(|s| s.executable);
    let same_size = code().find(|s| pages(s).1 == page_end(size));
    let segment = same_size.or_else(|| code().next())?;
    Some(pages(segment).0.wrapping_add(inside))
}

/// The end of the page that ends at or after `address`; sizes of a forged file go around.
fn page_end(address: u64) -> u64 {
    address.wrapping_add(PAGE - 1) & !(PAGE - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(file_offset: u64, file_size: u64, svma: u64, memory_size: u64) -> Segment {
        Segment {
            file_offset,
            file_size,
            svma,
            memory_size,
            executable: true,
        }
    }

    fn mapping(start: u64, limit: u64, offset: u64) -> Mapping {
        Mapping {
            start,
            limit,
            offset,
            ..Mapping::default()
        }
    }

    #[test]
    fn a_file_with_code_maps_by_file_offset() {
        // lld: the address is not the offset.
        let segments = [segment(0x1730, 0x5000, 0x2730, 0x5000)];
        let mapping = mapping(0x7f00_0000_1000, 0x7f00_0000_7000, 0x1000);
        assert_eq!(
            svma(&segments, true, &mapping, 0x7f00_0000_1800),
            Some(0x2800)
        );
        assert_eq!(svma(&segments, true, &mapping, 0x7f00_0001_0000), None);
    }

    #[test]
    fn a_file_of_debuginfo_maps_by_the_start_of_its_code() {
        // `objcopy --only-keep-debug` leaves the address and no contents.
        let segments = [segment(0x400, 0, 0x2730, 0x5000)];
        let mapping = mapping(0x7f00_0000_1000, 0x7f00_0000_7000, 0x1000);
        assert_eq!(
            svma(&segments, false, &mapping, 0x7f00_0000_1800),
            Some(0x2800)
        );
    }

    #[test]
    fn addresses_without_a_range_are_the_files_own() {
        assert_eq!(svma(&[], true, &mapping(0, 0, 0), 0x1234), Some(0x1234));
    }
}
