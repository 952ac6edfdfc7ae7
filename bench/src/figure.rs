//! The one output format of the benches: `FIGURE part/name value=… goal=… peer=… ok|MISS`.

use std::fmt;

/// What a figure must reach.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// At least this value.
    AtLeast(f64),
    /// At most this value.
    AtMost(f64),
    /// Printed for information.
    None,
}

impl Goal {
    fn met_by(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(bound) => value >= bound,
            Goal::AtMost(bound) => value <= bound,
            Goal::None => true,
        }
    }
}

/// One measured value, printed when dropped into [`Figure::print`].
pub struct Figure<'a> {
    /// `part/name`.
    pub name: &'a str,
    /// The measured value.
    pub value: f64,
    /// Its unit, written right behind the value.
    pub unit: &'a str,
    /// What it must reach.
    pub goal: Goal,
    /// What the same run measured of peers (`name:value` words joined by commas).
    pub peer: &'a str,
}

impl Figure<'_> {
    /// Prints the figure `part/name`.
    pub fn print_of(part: &str, name: &str, value: f64, unit: &str, goal: Goal, peer: &str) {
        let name = format!("{part}/{name}");
        Figure {
            name: &name,
            value,
            unit,
            goal,
            peer,
        }
        .print();
    }

    /// Prints the line.
    pub fn print(&self) {
        println!("{self}");
    }
}

impl fmt::Display for Figure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit;
        write!(
            f,
            "FIGURE {} value={}{unit} goal=",
            self.name,
            Short(self.value)
        )?;
        match self.goal {
            Goal::AtLeast(bound) => write!(f, ">={}{unit}", Short(bound))?,
            Goal::AtMost(bound) => write!(f, "<={}{unit}", Short(bound))?,
            Goal::None => f.write_str("-")?,
        }
        let peer = if self.peer.is_empty() { "-" } else { self.peer };
        let verdict = if self.goal.met_by(self.value) {
            "ok"
        } else {
            "MISS"
        };
        write!(f, " peer={peer} {verdict}")
    }
}

/// A number with as many digits as a reader of a measurement can use.
pub struct Short(pub f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size == size.trunc() || size >= 100.0 {
            write!(f, "{:.0}", self.0)
        } else if size >= 10.0 {
            write!(f, "{:.1}", self.0)
        } else {
            write!(f, "{:.2}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, goal: Goal) -> String {
        Figure {
            name: "a/b",
            value,
            unit: "x",
            goal,
            peer: "go:1x",
        }
        .to_string()
    }

    #[test]
    fn a_met_goal_reads_ok_and_a_missed_one_miss() {
        let met = "FIGURE a/b value=9.25x goal=>=8x peer=go:1x ok";
        assert_eq!(figure(9.25, Goal::AtLeast(8.0)), met);
        let missed = "FIGURE a/b value=312x goal=<=32x peer=go:1x MISS";
        assert_eq!(figure(312.0, Goal::AtMost(32.0)), missed);
        assert_eq!(
            figure(0.5, Goal::None),
            "FIGURE a/b value=0.50x goal=- peer=go:1x ok"
        );
    }

    #[test]
    fn a_value_that_is_no_number_meets_no_goal() {
        assert!(figure(f64::NAN, Goal::AtMost(1.0)).ends_with("MISS"));
    }
}
