//! From an instruction to its line, by the table that code objects have since CPython 3.11 (`Objects/locations.md` of
//! its sources).

/// The line of the instruction at `unit` (of two bytes). `None` where the table tells none, or is broken.
pub fn line_of(table: &[u8], first_line: u32, unit: u32) -> Option<u32> {
    let mut bytes = table.iter().copied();
    let (mut line, mut end) = (i64::from(first_line), 0_u64);
    while let Some(head) = bytes.next() {
        let has_line = match head >> 3 & 15 {
            0..=9 => bytes.next().map(|_| true)?,
            kind @ 10..=12 => {
                line += i64::from(kind) - 10;
                bytes.by_ref().nth(1)?;
                true
            }
            13 => {
                line += signed(&mut bytes)?;
                true
            }
            14 => {
                line += signed(&mut bytes)?;
                (0..3).try_for_each(|_| number(&mut bytes).map(drop))?;
                true
            }
            _ => false,
        };
        end += u64::from(head & 7) + 1;
        if u64::from(unit) < end {
            return has_line.then(|| u32::try_from(line).ok())?;
        }
    }
    None
}

/// Six bits a byte, the lowest first; bit 6 says that more follow.
fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..36).step_by(6) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

/// The sign stands in the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = number(bytes)?;
    let size = (value >> 1) as i64;
    Some(if value & 1 == 1 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_entry_moves_the_line_as_it_says() {
        let entry = |kind: u8, length: u8| 0x80 | kind << 3 | (length - 1);
        let mut table = vec![entry(14, 1), 2 << 1, 0, 1, 1]; // +2
        table.extend([entry(0, 2), 0x10]); // +0
        table.extend([entry(11, 3), 4, 9]); // +1
        table.extend([entry(13, 8), 1 << 6 | 1, 1]); // -(64 >> 1): sign and 32
        table.extend([entry(15, 1)]);
        let line = |unit| line_of(&table, 100, unit);
        assert_eq!(
            (line(0), line(1), line(2)),
            (Some(102), Some(102), Some(102))
        );
        assert_eq!((line(3), line(5)), (Some(103), Some(103)));
        assert_eq!((line(6), line(13)), (Some(71), Some(71)));
        assert_eq!((line(14), line(15), line(u32::MAX)), (None, None, None));
        for end in 0..table.len() {
            line_of(&table[..end], 100, 13);
        }
        assert_eq!(
            line_of(&[0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 1, 0),
            None
        );
        assert_eq!(
            line_of(&[0xe8, 0x43, 0x3f], 1, 0),
            None,
            "before the first line of all"
        );
    }
}
