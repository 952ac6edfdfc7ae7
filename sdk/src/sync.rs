//! The standard library's locks with a name: waits for them carry the label `lock` in the profiles
//! `mutex` and `block`.
//!
//! ```
//! use pilotlight::sync::Mutex;
//!
//! static ORDERS: Mutex<Vec<u32>> = Mutex::new("orders", Vec::new());
//! ORDERS.lock().unwrap().push(7);
//! # assert_eq!(ORDERS.name(), "orders");
//! ```
//!
//! Guards and errors are the standard library's. A lock that is free costs what it costs there.
//! Waits are seen without these wrappers too, by their stacks; a name helps where one stack takes
//! many locks.

use std::sync::TryLockError::{Poisoned, WouldBlock};
use std::sync::{
    Condvar as StdCondvar, LockResult, Mutex as StdMutex, MutexGuard, RwLock as StdRwLock,
    RwLockReadGuard, RwLockWriteGuard, TryLockResult, WaitTimeoutResult,
};
use std::time::Duration;

#[cfg(all(feature = "lock-hooks", target_os = "linux"))]
use crate::locks::named;

#[cfg(not(all(feature = "lock-hooks", target_os = "linux")))]
fn named<T>(_name: &'static str, wait: impl FnOnce() -> T) -> T {
    wait()
}

/// [`std::sync::Mutex`] with a name.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    name: &'static str,
    inner: StdMutex<T>,
}

impl<T> Mutex<T> {
    /// A free mutex.
    pub const fn new(name: &'static str, value: T) -> Mutex<T> {
        Mutex {
            name,
            inner: StdMutex::new(value),
        }
    }

    /// The value, without the mutex.
    ///
    /// # Errors
    /// When a thread panicked while it held the lock.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Takes the lock, and waits until it is free.
    ///
    /// # Errors
    /// When a thread panicked while it held the lock.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(guard) => Ok(guard),
            Err(Poisoned(error)) => Err(error),
            Err(WouldBlock) => named(self.name, || self.inner.lock()),
        }
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// When it is not free, or a thread panicked while it held the lock.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.inner.try_lock()
    }

    /// The value, without locking.
    ///
    /// # Errors
    /// When a thread panicked while it held the lock.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

/// [`std::sync::RwLock`] with a name.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized> {
    name: &'static str,
    inner: StdRwLock<T>,
}

impl<T> RwLock<T> {
    /// A free lock.
    pub const fn new(name: &'static str, value: T) -> RwLock<T> {
        RwLock {
            name,
            inner: StdRwLock::new(value),
        }
    }

    /// The value, without the lock.
    ///
    /// # Errors
    /// When a thread panicked while it wrote.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Takes the lock for reading, and waits until nobody writes.
    ///
    /// # Errors
    /// When a thread panicked while it wrote.
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        match self.inner.try_read() {
            Ok(guard) => Ok(guard),
            Err(Poisoned(error)) => Err(error),
            Err(WouldBlock) => named(self.name, || self.inner.read()),
        }
    }

    /// Takes the lock for writing, and waits until it is free.
    ///
    /// # Errors
    /// When a thread panicked while it wrote.
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        match self.inner.try_write() {
            Ok(guard) => Ok(guard),
            Err(Poisoned(error)) => Err(error),
            Err(WouldBlock) => named(self.name, || self.inner.write()),
        }
    }

    /// The value, without locking.
    ///
    /// # Errors
    /// When a thread panicked while it wrote.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

/// [`std::sync::Condvar`] with a name. It takes the guards of [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar {
    name: &'static str,
    inner: StdCondvar,
}

impl Condvar {
    /// A condition variable that nobody waits for.
    pub const fn new(name: &'static str) -> Condvar {
        Condvar {
            name,
            inner: StdCondvar::new(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Waits until somebody notifies, or for nothing.
    ///
    /// # Errors
    /// When a thread panicked while it held the mutex.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        named(self.name, || self.inner.wait(guard))
    }

    /// Waits while `condition` holds.
    ///
    /// # Errors
    /// When a thread panicked while it held the mutex.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        named(self.name, || self.inner.wait_while(guard, condition))
    }

    /// Waits until somebody notifies, or for nothing, but not longer than `limit`.
    ///
    /// # Errors
    /// When a thread panicked while it held the mutex.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        named(self.name, || self.inner.wait_timeout(guard, limit))
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}
