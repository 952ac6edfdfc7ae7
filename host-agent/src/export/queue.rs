//! Profiles that wait for the server: in memory, or on disk.

use super::parcel::Parcel;
use super::spool::Spool;
use std::collections::BTreeMap;
use std::io;

/// The oldest leaves first; when there is no room, it is dropped.
#[derive(Debug)]
pub(super) enum Queue {
    Memory(Memory),
    Disk(Spool),
}

impl Queue {
    /// Adds a profile; how many were dropped for want of room.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn push(&mut self, parcel: Parcel, id: u64) -> io::Result<u64> {
        match self {
            Queue::Memory(memory) => Ok(memory.push(parcel, id)),
            Queue::Disk(spool) => spool.push(&parcel, id),
        }
    }

    /// The oldest: its number, its id, and itself. `damaged` grows by those that cannot be read any more.
    pub fn oldest(&mut self, damaged: &mut u64) -> Option<(u64, u64, Parcel)> {
        match self {
            Queue::Memory(memory) => memory.oldest(),
            Queue::Disk(spool) => spool.oldest(damaged),
        }
    }

    /// It needs not be sent again.
    pub fn done(&mut self, sequence: u64) {
        match self {
            Queue::Memory(memory) => drop(memory.take(sequence)),
            Queue::Disk(spool) => spool.done(sequence),
        }
    }

    /// Profiles that wait, and their bytes.
    pub fn size(&self) -> (u64, u64) {
        match self {
            Queue::Memory(memory) => (memory.waiting.len() as u64, memory.bytes),
            Queue::Disk(spool) => spool.size(),
        }
    }
}

/// Those in memory are lost when the agent ends.
#[derive(Debug)]
pub(super) struct Memory {
    waiting: BTreeMap<u64, (u64, Parcel)>,
    next: u64,
    bytes: u64,
    limit_bytes: u64,
}

impl Memory {
    pub fn new(limit_bytes: u64) -> Memory {
        Memory {
            waiting: BTreeMap::new(),
            next: 1,
            bytes: 0,
            limit_bytes,
        }
    }

    fn push(&mut self, parcel: Parcel, id: u64) -> u64 {
        let size = parcel.body.len() as u64;
        if size > self.limit_bytes {
            return 1;
        }
        let mut dropped = 0;
        while self.bytes + size > self.limit_bytes
            && let Some((&oldest, _)) = self.waiting.first_key_value()
        {
            drop(self.take(oldest));
            dropped += 1;
        }
        self.bytes += size;
        self.waiting.insert(self.next, (id, parcel));
        self.next += 1;
        dropped
    }

    fn oldest(&self) -> Option<(u64, u64, Parcel)> {
        let (&sequence, (id, parcel)) = self.waiting.first_key_value()?;
        Some((sequence, *id, parcel.clone()))
    }

    fn take(&mut self, sequence: u64) -> Option<Parcel> {
        let (_, parcel) = self.waiting.remove(&sequence)?;
        self.bytes -= parcel.body.len() as u64;
        Some(parcel)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parcel::Protocol;
    use super::super::spool::Found;
    use super::*;
    use std::path::{Path, PathBuf};

    fn parcel(number: u8, bytes: usize) -> Parcel {
        Parcel {
            protocol: Protocol::Pyroscope,
            labels: vec![("service_name".to_owned(), format!("s{number}"))],
            name: "process_cpu".to_owned(),
            body: vec![number; bytes].into(),
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pilotlight-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn open(folder: &Path) -> (Queue, Found) {
        let (spool, found) = Spool::open(folder, 80_000).unwrap();
        (Queue::Disk(spool), found)
    }

    fn next(queue: &mut Queue) -> Option<(u64, Parcel)> {
        let mut damaged = 0;
        let (_, id, parcel) = queue.oldest(&mut damaged)?;
        assert_eq!(damaged, 0);
        Some((id, parcel))
    }

    #[test]
    fn what_waits_on_disk_outlives_the_agent_and_keeps_its_order_and_ids() {
        let folder = folder("spool-restart");
        let (mut queue, found) = open(&folder);
        assert_eq!(found, Found::default());
        for number in 1..=3 {
            assert_eq!(
                queue
                    .push(parcel(number, 1000), 70 + u64::from(number))
                    .unwrap(),
                0
            );
        }
        queue.done(1);
        drop(queue);
        let (mut queue, found) = open(&folder);
        assert_eq!((found.waiting, found.damaged), (2, 0));
        assert_eq!(next(&mut queue), Some((72, parcel(2, 1000))));
        queue.done(2);
        assert_eq!(queue.push(parcel(4, 10), 74).unwrap(), 0);
        assert_eq!(next(&mut queue), Some((73, parcel(3, 1000))));
        queue.done(3);
        assert_eq!(next(&mut queue), Some((74, parcel(4, 10))));
        queue.done(4);
        assert_eq!((next(&mut queue), queue.size()), (None, (0, 0)));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn beyond_the_budget_the_oldest_are_dropped_and_counted() {
        let folder = folder("spool-full");
        let (disk, _) = open(&folder);
        for mut queue in [disk, Queue::Memory(Memory::new(80_000))] {
            let mut dropped = 0;
            for number in 1..=100 {
                dropped += queue.push(parcel(number, 4000), 0).unwrap();
            }
            let (waiting, bytes) = queue.size();
            assert_eq!(waiting + dropped, 100);
            assert!(
                (13..=20).contains(&waiting) && bytes <= 80_000,
                "{waiting}, {bytes}"
            );
            // The newest are those that are left.
            let first = 101 - waiting as u8;
            assert_eq!(next(&mut queue).unwrap().1, parcel(first, 4000));
            assert_eq!(queue.push(parcel(0, 80_001), 0).unwrap(), 1);
            assert_eq!(queue.size(), (waiting, bytes));
        }
        let files = std::fs::read_dir(&folder).unwrap().flatten();
        let bytes: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
        assert!(bytes <= 80_000, "{bytes}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn damaged_records_are_passed_over_and_counted() {
        let folder = folder("spool-damaged");
        let (mut queue, _) = open(&folder);
        for number in 1..=3 {
            queue.push(parcel(number, 500), u64::from(number)).unwrap();
        }
        drop(queue);
        let file = folder.join("queue-0");
        let good = std::fs::read(&file).unwrap();
        let third = good.len() / 3;
        // Any byte of the second record that is not its state; a file that was cut; garbage behind it.
        let flipped = [0, 8, 16, 24, 28, 32, 48, third - 1].map(|at| {
            let mut bytes = good.clone();
            bytes[third + at] ^= 0x40;
            (bytes, 2)
        });
        let cut = (good[..good.len() - 1].to_vec(), 2);
        let garbage = ([good.clone(), vec![0xff; 100]].concat(), 3);
        for (bytes, waiting) in flipped.into_iter().chain([cut, garbage]) {
            std::fs::write(&file, &bytes).unwrap();
            let (mut queue, found) = open(&folder);
            assert_eq!((found.waiting, found.damaged), (waiting, 1));
            assert_eq!(next(&mut queue), Some((1, parcel(1, 500))));
            // It goes on being used.
            queue.push(parcel(9, 500), 9).unwrap();
            assert_eq!(queue.size().0, waiting + 1);
        }
        let (queue, _) = open(&folder);
        let other = Spool::open(&folder, 80_000);
        assert!(other.unwrap_err().to_string().contains("another agent"));
        drop(queue);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
