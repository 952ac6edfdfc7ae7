//! Profiles of several segments, kept as they were interned until they become a block: names that
//! come with every profile are put in once, and compaction need not read and merge what the server
//! has just written. Nothing relies on it: what is not here is read from disk.

use std::collections::BTreeMap;

use crate::segment::{Kept, Part, PartBuilder, PartHeader, Pushed, service_of};
use pilotlight_profile::Profile;

/// One service of an epoch.
struct Service {
    builder: PartBuilder,
    /// Profiles that are in a segment already.
    cut: usize,
}

/// Profiles of consecutive segments.
pub struct Epoch {
    /// Tells it from others.
    pub number: u64,
    /// The segments that its profiles are in, oldest first.
    pub segments: Vec<String>,
    services: BTreeMap<String, Service>,
    /// Whether the newest segment is being written.
    pub in_flight: bool,
    /// Whether it ends with the next segment.
    pub ending: bool,
    /// Whether it holds profiles that nobody was told are stored: it becomes no block.
    pub broken: bool,
}

impl Epoch {
    /// Nothing yet.
    pub fn new(number: u64) -> Self {
        Self {
            number,
            segments: Vec::new(),
            services: BTreeMap::new(),
            in_flight: false,
            ending: false,
            broken: false,
        }
    }

    /// Adds a profile to its service; the answer is what was kept and by how many bytes memory grew.
    pub fn add(&mut self, profile: &Profile, pushed: &Pushed) -> (Kept, usize) {
        let name = service_of(&pushed.labels);
        if !self.services.contains_key(name) {
            let builder = PartBuilder::new(name);
            let service = Service { builder, cut: 0 };
            self.services.insert(name.to_owned(), service);
        }
        let Some(service) = self.services.get_mut(name) else {
            return (Kept::default(), 0);
        };
        let before = service.builder.heap_bytes();
        let kept = service.builder.add_profile(profile, pushed);
        (kept, service.builder.heap_bytes() - before)
    }

    /// The profiles that are in no segment yet, as parts of one.
    pub fn cut(&mut self) -> Vec<(PartHeader, Part)> {
        let fresh = self
            .services
            .values_mut()
            .filter(|service| service.builder.profiles() > service.cut);
        fresh
            .map(|service| {
                let part = service.builder.cut(service.cut);
                service.cut = service.builder.profiles();
                part
            })
            .collect()
    }

    /// Heap bytes, roughly.
    pub fn heap_bytes(&self) -> usize {
        let services = self.services.values();
        services.map(|service| service.builder.heap_bytes()).sum()
    }
}

/// An epoch that takes no more profiles; its tables are gone.
pub struct Closed {
    number: u64,
    /// The segments that its profiles are in, oldest first.
    pub segments: Vec<String>,
    /// Parts of all services, in the order of their names.
    pub parts: Vec<(PartHeader, Part)>,
    in_flight: bool,
}

impl Closed {
    fn of(epoch: Epoch) -> Self {
        let services = epoch.services.into_values();
        Self {
            number: epoch.number,
            segments: epoch.segments,
            parts: services.map(|service| service.builder.finish()).collect(),
            in_flight: epoch.in_flight,
        }
    }
}

/// What is known of a segment that is to become part of a block.
pub enum Taken {
    /// This epoch is over; its segments are on disk.
    Epoch(Closed),
    /// The epoch of the segment ends soon.
    Later,
    /// The segment is of no epoch.
    Unknown,
}

/// The open epoch, and those that wait to become blocks.
pub struct Epochs {
    /// Takes profiles.
    pub open: Epoch,
    closed: Vec<Closed>,
    /// Closed ones that may wait; the oldest goes beyond that.
    keep: usize,
    /// An epoch of this many bytes ends.
    full_bytes: usize,
}

impl Epochs {
    /// None yet.
    pub fn new(keep: usize, full_bytes: usize) -> Self {
        Self {
            open: Epoch::new(0),
            closed: Vec::new(),
            keep,
            full_bytes,
        }
    }

    /// The profiles in no segment yet go into the segment `name`.
    pub fn cut(&mut self, name: &str) -> (u64, Vec<(PartHeader, Part)>) {
        let parts = self.open.cut();
        let number = self.open.number;
        self.open.segments.push(name.to_owned());
        self.open.in_flight = true;
        if self.open.ending || self.open.heap_bytes() >= self.full_bytes {
            self.close();
        }
        (number, parts)
    }

    fn close(&mut self) {
        let next = Epoch::new(self.open.number + 1);
        let old = std::mem::replace(&mut self.open, next);
        if !old.broken {
            self.closed.push(Closed::of(old));
        }
        if self.closed.len() > self.keep {
            self.closed.remove(0);
        }
    }

    /// Notes how the write of the newest segment of an epoch ended.
    pub fn written(&mut self, number: u64, ok: bool) {
        if self.open.number == number {
            self.open.in_flight = false;
            if !ok {
                // What came since still has to be written: the rest is read from disk.
                self.open.segments.clear();
                (self.open.broken, self.open.ending) = (true, true);
            }
        }
        if let Some(at) = self.closed.iter().position(|epoch| epoch.number == number) {
            self.closed[at].in_flight = false;
            if !ok {
                self.closed.remove(at);
            }
        }
    }

    /// Starts anew: what was open is half interned.
    pub fn forget_open(&mut self) {
        self.open = Epoch::new(self.open.number + 1);
    }

    /// An epoch to make a block of; `due` is the oldest segment that has waited long enough.
    /// `idle`: whether every profile is in a segment.
    pub fn take(&mut self, due: Option<&str>, idle: bool) -> Taken {
        if let Some(at) = self.closed.iter().position(|epoch| !epoch.in_flight) {
            return Taken::Epoch(self.closed.remove(at));
        }
        let holds = |names: &[String]| due.is_some_and(|due| names.iter().any(|name| name == due));
        if holds(&self.open.segments) {
            if !idle || self.open.in_flight {
                self.open.ending = true;
                return Taken::Later;
            }
            let next = Epoch::new(self.open.number + 1);
            let old = std::mem::replace(&mut self.open, next);
            return Taken::Epoch(Closed::of(old));
        }
        if self.closed.iter().any(|epoch| holds(&epoch.segments)) {
            return Taken::Later;
        }
        Taken::Unknown
    }

    /// The segments whose profiles are in memory.
    pub fn segments(&self) -> impl Iterator<Item = &String> {
        let closed = self.closed.iter().flat_map(|epoch| &epoch.segments);
        closed.chain(&self.open.segments)
    }
}

#[cfg(test)]
mod tests;
