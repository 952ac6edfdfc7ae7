//! A table as bytes, so that it need not be compiled again: `docs/formats/unwind-table.md`, "Saved".

use super::{Row, Stats, Table, chunks_of};
use crate::rule::{Kind, Rule, Saved};

const HEADER: usize = 36;
const RULE: usize = 12;
/// Pages of 4 GiB.
const MOST_PAGES: usize = 1 << 16;

impl Table {
    /// Appends the table to `out`.
    pub fn save(&self, out: &mut Vec<u8>) {
        let Stats {
            fdes,
            rows: _,
            rules: _,
            unsupported_rows,
            signal_fdes,
            malformed,
        } = self.stats;
        let counts = [self.pages.len(), self.rows.len(), self.rules.len()].map(|n| n as u32);
        out.reserve(HEADER + self.pages.len() * 4 + self.rows.len() * 4 + self.rules.len() * RULE);
        out.extend(self.base_svma.to_le_bytes());
        for number in [fdes, unsupported_rows, signal_fdes, malformed]
            .into_iter()
            .chain(counts)
            .chain(self.pages.iter().copied())
        {
            out.extend(number.to_le_bytes());
        }
        for row in &self.rows {
            out.extend((u32::from(row.low) | u32::from(row.rule) << 16).to_le_bytes());
        }
        for rule in &self.rules {
            out.extend([
                rule.kind as u8,
                rule.bp_saved as u8,
                rule.bx_saved as u8,
                rule.extra as u8,
            ]);
            out.extend(rule.cfa.to_le_bytes());
            out.extend(rule.bp.to_le_bytes());
            out.extend(rule.bx.to_le_bytes());
        }
    }

    /// The table that [`Table::save`] made these bytes of; `None` when they are none, or hold what no table does.
    ///
    /// ```
    /// # use pilotlight_unwind::Table;
    /// let table = Table::from_elf(&std::fs::read("/proc/self/exe")?)?;
    /// let mut saved = Vec::new();
    /// table.save(&mut saved);
    /// assert_eq!(Table::load(&saved).unwrap().rows(), table.rows());
    /// assert!(Table::load(&saved[1..]).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load(bytes: &[u8]) -> Option<Table> {
        let (header, rest) = bytes.split_at_checked(HEADER)?;
        let number = |at: usize| Some(u32_of(header.get(at..at + 4)?));
        let (page_count, row_count, rule_count) = (number(24)?, number(28)?, number(32)?);
        let (pages, rest) = rest.split_at_checked((page_count as usize).checked_mul(4)?)?;
        let (rows, rules) = rest.split_at_checked((row_count as usize).checked_mul(4)?)?;
        if rules.len() != (rule_count as usize).checked_mul(RULE)? {
            return None;
        }
        let pages: Vec<u32> = pages.chunks_exact(4).map(u32_of).collect();
        let rows: Vec<Row> = rows.chunks_exact(4).map(row_of).collect();
        let rules: Vec<Rule> = rules
            .chunks_exact(RULE)
            .map(rule_of)
            .collect::<Option<_>>()?;
        if !is_table(&pages, &rows, &rules) {
            return None;
        }
        Some(Table {
            base_svma: u64::from_le_bytes(header.get(..8)?.try_into().ok()?),
            chunks: chunks_of(&pages, &rows).into(),
            pages: pages.into(),
            rows: rows.into(),
            rules: rules.into(),
            stats: Stats {
                fdes: number(8)?,
                rows: row_count,
                rules: rule_count,
                unsupported_rows: number(12)?,
                signal_fdes: number(16)?,
                malformed: number(20)?,
            },
        })
    }
}

/// Pages that ascend over all rows; rows that ascend from 0 in each page and name rules that are there.
fn is_table(pages: &[u32], rows: &[Row], rules: &[Rule]) -> bool {
    let ends = pages.first() == Some(&0) && pages.last() == Some(&(rows.len() as u32));
    let ruled = rows.iter().all(|row| usize::from(row.rule) < rules.len());
    let ascends = |bounds: &[u32]| {
        let page = rows.get(bounds[0] as usize..bounds[1] as usize);
        page.is_some_and(|page| {
            page.first().is_some_and(|row| row.low == 0)
                && page.windows(2).all(|pair| pair[0].low < pair[1].low)
        })
    };
    let gap = rules.first() == Some(&Rule::GAP) && rules.len() >= 2;
    ends && gap && ruled && pages.len() <= MOST_PAGES + 1 && pages.windows(2).all(ascends)
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

fn row_of(bytes: &[u8]) -> Row {
    let word = u32_of(bytes);
    Row {
        low: word as u16,
        rule: (word >> 16) as u16,
    }
}

fn rule_of(bytes: &[u8]) -> Option<Rule> {
    let &[
        kind,
        bp_saved,
        bx_saved,
        extra,
        c0,
        c1,
        c2,
        c3,
        p0,
        p1,
        x0,
        x1,
    ] = bytes
    else {
        return None;
    };
    Some(Rule {
        kind: kind_of(kind)?,
        bp_saved: saved_of(bp_saved)?,
        bx_saved: saved_of(bx_saved)?,
        extra: extra as i8,
        cfa: i32::from_le_bytes([c0, c1, c2, c3]),
        bp: i16::from_le_bytes([p0, p1]),
        bx: i16::from_le_bytes([x0, x1]),
    })
}

fn kind_of(byte: u8) -> Option<Kind> {
    const KINDS: [Kind; 10] = [
        Kind::FramePointer,
        Kind::End,
        Kind::Sp,
        Kind::Bp,
        Kind::Bx,
        Kind::DerefSp,
        Kind::DerefBp,
        Kind::Plt,
        Kind::Signal,
        Kind::Unsupported,
    ];
    KINDS.get(usize::from(byte)).copied()
}

fn saved_of(byte: u8) -> Option<Saved> {
    const SAVED: [Saved; 4] = [Saved::Same, Saved::AtCfa, Saved::AtBp, Saved::Lost];
    SAVED.get(usize::from(byte)).copied()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::*;

    fn saved(table: &Table) -> Vec<u8> {
        let mut out = Vec::new();
        table.save(&mut out);
        out
    }

    #[test]
    fn kinds_are_read_as_they_are_written() {
        for byte in 0..=u8::MAX {
            assert_eq!(
                kind_of(byte).map(|kind| kind as u8),
                (byte < 10).then_some(byte)
            );
            assert_eq!(
                saved_of(byte).map(|at| at as u8),
                (byte < 4).then_some(byte)
            );
        }
    }

    #[test]
    fn a_loaded_table_is_the_saved_one() {
        let elf = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for table in [Table::from_elf(&elf).unwrap(), Table::empty()] {
            let loaded = Table::load(&saved(&table)).unwrap();
            assert_eq!(loaded.rows, table.rows);
            assert_eq!(loaded.pages, table.pages);
            assert_eq!(loaded.rules, table.rules);
            assert_eq!(loaded.chunks, table.chunks);
            assert_eq!(loaded.base_svma, table.base_svma);
            assert_eq!(loaded.stats, table.stats);
        }
    }

    #[test]
    fn what_is_no_table_is_refused_and_nothing_panics() {
        let elf = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let good = saved(&Table::from_elf(&elf).unwrap());
        for length in (0..100).chain([good.len() - 1]) {
            assert!(Table::load(&good[..length]).is_none(), "{length}");
        }
        // Whatever a byte says, looking things up stays inside.
        for at in (8..200).chain((200..good.len()).step_by(good.len() / 200)) {
            let mut bad = good.clone();
            bad[at] ^= 0x81;
            if let Some(table) = Table::load(&bad) {
                for page in 0..table.pages().len() as u32 {
                    table.lookup(page << 16 | 0x8123);
                }
            }
        }
        let mut huge = good.clone();
        huge[28..32].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Table::load(&huge).is_none());
    }
}
