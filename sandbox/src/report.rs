//! What the child says to the parent: lines of `key value`, so that a forged answer is text.

use pilotlight_symbolize::tables;

/// What was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Rank of the quality; see [`tables::Quality::from_rank`].
    pub quality: u8,
    /// Bytes of the table.
    pub table_bytes: u64,
    /// Ranges of addresses with one answer.
    pub rows: u64,
    /// Units of DWARF, and those that could not be read to their end.
    pub units: u64,
    /// Units that could not be read to their end.
    pub damaged_units: u64,
    /// Units whose split half was not there.
    pub missing_split_units: u64,
    /// Whether the kernel took the file system away as well.
    pub landlock: bool,
}

impl Report {
    pub(crate) fn of(report: &tables::Report, landlock: bool) -> Report {
        Report {
            quality: report.quality.rank(),
            table_bytes: report.table_bytes,
            rows: report.rows,
            units: report.units,
            damaged_units: report.damaged_units,
            missing_split_units: report.missing_split_units,
            landlock,
        }
    }

    fn fields(&mut self) -> [(&'static str, &mut u64); 5] {
        [
            ("table_bytes", &mut self.table_bytes),
            ("rows", &mut self.rows),
            ("units", &mut self.units),
            ("damaged_units", &mut self.damaged_units),
            ("missing_split_units", &mut self.missing_split_units),
        ]
    }

    pub(crate) fn text(mut self) -> String {
        let mut text = format!(
            "quality {}\nlandlock {}\n",
            self.quality,
            u8::from(self.landlock)
        );
        for (key, value) in self.fields() {
            text.push_str(&format!("{key} {value}\n"));
        }
        text
    }

    /// Unknown lines are left out.
    pub(crate) fn parse(text: &str) -> Report {
        let mut report = Report::default();
        for (key, value) in text.lines().filter_map(|l| l.split_once(' ')) {
            let value: u64 = value.parse().unwrap_or(0);
            match key {
                "quality" => report.quality = u8::try_from(value).unwrap_or(0),
                "landlock" => report.landlock = value != 0,
                _ => {
                    let mut fields = report.fields();
                    if let Some((_, field)) = fields.iter_mut().find(|(k, _)| *k == key) {
                        **field = value;
                    }
                }
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn a_report_comes_back() {
        let report = Report {
            quality: 60,
            table_bytes: 1,
            rows: 2,
            units: 3,
            damaged_units: 4,
            missing_split_units: 5,
            landlock: true,
        };
        assert_eq!(Report::parse(&report.clone().text()), report);
        assert_eq!(
            Report::parse("nonsense\nrows x\nquality 999"),
            Report::default()
        );
    }
}
