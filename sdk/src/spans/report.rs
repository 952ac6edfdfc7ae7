//! What the endpoints show.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use pilotlight_profile::{Label, LabelValue, LocationId, Profile, ProfileBuilder, StackId};

use super::{Frame, TaskState, entry, nodes, tasks, waits};

/// Time between polls since `await` was switched on, by logical stack: waits/count and
/// wait/nanoseconds. Waits that last now are in the nanoseconds, and not yet in the count. Cumulative:
/// the difference of two is what happened between them.
#[must_use]
pub fn await_profile() -> Profile {
    // First what has ended: a wait that ends meanwhile is missed for once, not counted twice.
    let mut sums = waits::sums(nodes::count());
    for (node, ns) in entry::waiting() {
        if let Some(sum) = sums.get_mut(node as usize) {
            sum.1 += ns;
        }
    }
    let mut report = Report::new(("waits", "count"), ("wait", "nanoseconds"));
    for (node, &(waits, ns)) in sums.iter().enumerate().filter(|(_, sum)| **sum != (0, 0)) {
        let stack = report.stack(&nodes::path(node as u32));
        let values = [waits as i64, ns as i64];
        report.builder.sample(stack, Default::default(), &values);
    }
    report.builder.finish()
}

/// The live tasks by logical stack and labels: tasks/count, and the sum of their ages, age/nanoseconds.
#[must_use]
pub fn tasks_profile() -> Profile {
    let mut report = Report::new(("tasks", "count"), ("age", "nanoseconds"));
    for task in tasks() {
        let stack = report.stack(&task.stack);
        let labels: Vec<Label> = task
            .labels
            .iter()
            .map(|(key, value)| Label {
                key: report.builder.string(key.as_bytes()),
                value: LabelValue::Str(report.builder.string(value.as_bytes())),
            })
            .collect();
        let labels = report.builder.label_set(&labels);
        let age_ns = i64::try_from(task.age.as_nanos()).unwrap_or(i64::MAX);
        report.builder.sample(stack, labels, &[1, age_ns]);
    }
    report.builder.finish()
}

/// The live tasks as text. Grouped by logical stack with the oldest age of each, or, with `each`, one
/// by one with state and labels.
#[must_use]
pub fn tasks_text(each: bool) -> String {
    let tasks = tasks();
    let mut text = format!("tasks: total {}\n", tasks.len());
    // Writing to a String cannot fail.
    if each {
        for task in &tasks {
            let _ = write!(
                text,
                "\ntask {} [{}, {:.3?} old]",
                task.id,
                state(task.state),
                task.age
            );
            let _ = writeln!(
                text,
                "{}:",
                if task.root == task.id {
                    String::new()
                } else {
                    format!(" of task {}", task.root)
                }
            );
            for (key, value) in task.labels.iter() {
                let _ = writeln!(text, "# {key}={value:?}");
            }
            stack_text(&mut text, &task.stack);
        }
        return text;
    }
    let mut groups: HashMap<Vec<String>, (usize, &super::Task)> = HashMap::new();
    for task in &tasks {
        let key = task.stack.iter().map(Frame::to_string).collect();
        groups.entry(key).or_insert((0, task)).0 += 1;
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|(count, oldest)| (std::cmp::Reverse(*count), oldest.id));
    for (count, oldest) in groups {
        let _ = writeln!(
            text,
            "\n{count} @ oldest {:.3?}, {}",
            oldest.age,
            state(oldest.state)
        );
        stack_text(&mut text, &oldest.stack);
    }
    text
}

fn state(state: TaskState) -> String {
    match state {
        TaskState::Running => "running".into(),
        TaskState::Waiting(None) => "waiting".into(),
        TaskState::Waiting(Some(time)) => format!("waiting for {time:.3?}"),
    }
}

fn stack_text(text: &mut String, stack: &[Frame]) {
    for frame in stack.iter().rev() {
        let _ = writeln!(text, "#\t{frame}");
    }
}

/// A profile of logical stacks under construction.
struct Report {
    builder: ProfileBuilder,
    locations: HashMap<(&'static str, &'static str, u32), LocationId>,
}

impl Report {
    fn new(count: (&str, &str), sum: (&str, &str)) -> Report {
        let mut builder = ProfileBuilder::new();
        builder.sample_type(count.0, count.1);
        builder.sample_type(sum.0, sum.1);
        builder.default_sample_type(sum.0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        builder.time(now.unwrap_or_default().as_nanos() as i64, 0);
        Report {
            builder,
            locations: HashMap::new(),
        }
    }

    fn stack(&mut self, frames: &[Frame]) -> StackId {
        let leaf_first: Vec<LocationId> = frames.iter().rev().map(|f| self.location(*f)).collect();
        self.builder.stack(&leaf_first)
    }

    fn location(&mut self, frame: Frame) -> LocationId {
        let key = (frame.name, frame.file, frame.line);
        if let Some(&location) = self.locations.get(&key) {
            return location;
        }
        let name = self.builder.string(frame.name.as_bytes());
        let file = self.builder.string(frame.file.as_bytes());
        let line = i64::from(frame.line);
        let function = self.builder.function(name, name, file, line);
        let location = self.builder.location(None, 0, &[(function, line)]);
        self.locations.insert(key, location);
        location
    }
}
