//! The time by which age is judged: a clock that jumps must not make a server delete fresh data.

use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
/// The wall clock may run ahead of the steady one by so much between two looks.
const SLACK_NS: i64 = 600 * SECOND;
/// A jump ahead is believed after so long: a machine that slept, or was moved, is right about time.
const BELIEVED_AFTER_NS: i64 = 86_400 * SECOND;
/// So long after a start nothing is deleted by age if that would be everything.
const HELD_AFTER_START_NS: i64 = 3600 * SECOND;

/// Both clocks at one look.
#[derive(Clone, Copy)]
pub struct Look {
    /// Unix nanoseconds, as the machine says.
    pub wall_ns: i64,
    /// Nanoseconds since some moment; never jumps.
    pub steady_ns: i64,
}

/// What was seen of the clocks.
#[derive(Default)]
pub struct AgeClock {
    began_ns: Option<i64>,
    /// The last look that was believed.
    anchor: Option<Look>,
}

impl AgeClock {
    /// The time to judge age by; `None` while nothing may be deleted by age. `newest_ns` is the time
    /// of the newest data there is.
    pub fn now(&mut self, look: Look, newest_ns: Option<i64>, max_age: Duration) -> Option<i64> {
        let began_ns = *self.began_ns.get_or_insert(look.steady_ns);
        let anchor = *self.anchor.get_or_insert(look);
        let passed = look.steady_ns.saturating_sub(anchor.steady_ns);
        let latest = anchor
            .wall_ns
            .saturating_add(passed)
            .saturating_add(SLACK_NS);
        let believed = look.wall_ns <= latest || passed > BELIEVED_AFTER_NS;
        let now_ns = if believed {
            self.anchor = Some(look);
            look.wall_ns
        } else {
            latest
        };
        let max_age_ns = i64::try_from(max_age.as_nanos()).unwrap_or(i64::MAX);
        let takes_all = newest_ns.is_some_and(|newest| now_ns.saturating_sub(newest) > max_age_ns);
        let fresh = look.steady_ns.saturating_sub(began_ns) < HELD_AFTER_START_NS;
        (!(takes_all && fresh)).then_some(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;
    const T: i64 = 1_800_000_000;
    const MAX_AGE: Duration = Duration::from_secs(15 * DAY as u64);

    /// Looks at seconds (wall, steady), the newest data being of `newest`.
    fn looks(clock: &mut AgeClock, newest: i64, looks: &[(i64, i64)]) -> Vec<Option<i64>> {
        looks
            .iter()
            .map(|&(wall, steady)| {
                let look = Look {
                    wall_ns: wall * SECOND,
                    steady_ns: steady * SECOND,
                };
                let now = clock.now(look, Some(newest * SECOND), MAX_AGE);
                now.map(|now| now / SECOND)
            })
            .collect()
    }

    #[test]
    fn a_clock_that_goes_on_is_believed() {
        let mut clock = AgeClock::default();
        let seen = looks(&mut clock, T, &[(T, 0), (T + 60, 60), (T + 660, 61)]);
        assert_eq!(seen, [Some(T), Some(T + 60), Some(T + 660)]);
    }

    #[test]
    fn a_jump_ahead_is_not_believed_for_a_day() {
        let mut clock = AgeClock::default();
        let year = 365 * DAY;
        let seen = looks(
            &mut clock,
            T,
            &[
                (T, 0),
                (T + year, 1),
                (T + year + DAY, DAY),
                (T + 2 * DAY, 2 * DAY),
            ],
        );
        assert_eq!(
            seen,
            [
                Some(T),
                Some(T + 601),
                Some(T + DAY + 600),
                Some(T + 2 * DAY)
            ],
            "and a clock that comes back is believed at once"
        );
        let mut clock = AgeClock::default();
        let seen = looks(
            &mut clock,
            T + year,
            &[(T, 0), (T + year, 1), (T + year + DAY, DAY + 2)],
        );
        assert_eq!(seen[2], Some(T + year + DAY), "what stays so is right");
    }

    #[test]
    fn a_jump_back_only_makes_things_younger() {
        let mut clock = AgeClock::default();
        let seen = looks(&mut clock, T, &[(T, 0), (T - 3600, 1), (T, 3601)]);
        assert_eq!(seen, [Some(T), Some(T - 3600), Some(T)]);
    }

    #[test]
    fn a_start_with_a_wrong_clock_deletes_nothing_at_once() {
        let mut clock = AgeClock::default();
        let later = T + 400 * DAY;
        let seen = looks(
            &mut clock,
            T,
            &[(later, 5), (later + 60, 65), (later + 3600, 3605)],
        );
        assert_eq!(seen, [None, None, Some(later + 3600)]);
        let mut clock = AgeClock::default();
        let seen = looks(&mut clock, T - 14 * DAY, &[(T, 0)]);
        assert_eq!(
            seen,
            [Some(T)],
            "most of it may go: that is what retention is for"
        );
    }
}
