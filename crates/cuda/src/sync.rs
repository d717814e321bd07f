//! The locks and counters of what loom runs: parking_lot's and the standard library's, or loom's under its cfg.

#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(loom)]
pub(crate) use under_loom::{Condvar, Mutex};

#[cfg(loom)]
mod under_loom {
    use std::time::Duration;

    use loom::sync::MutexGuard;

    /// loom's mutex, without the poison that it never has.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> Guard<'_, T> {
            match self.0.lock() {
                Ok(guard) => Guard(Some(guard)),
                Err(poisoned) => Guard(Some(poisoned.into_inner())),
            }
        }
    }

    /// A guard that [`Condvar::wait`] can take out and put back.
    pub(crate) struct Guard<'a, T>(Option<MutexGuard<'a, T>>);

    impl<T> std::ops::Deref for Guard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match &self.0 {
                Some(guard) => guard,
                None => unreachable!("taken only while waiting"),
            }
        }
    }

    impl<T> std::ops::DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match &mut self.0 {
                Some(guard) => guard,
                None => unreachable!("taken only while waiting"),
            }
        }
    }

    /// loom's condition, called as parking_lot's is.
    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut Guard<'_, T>) {
            if let Some(inner) = guard.0.take() {
                guard.0 = Some(match self.0.wait(inner) {
                    Ok(inner) => inner,
                    Err(poisoned) => poisoned.into_inner(),
                });
            }
        }

        /// loom knows no time: as [`wait`](Self::wait).
        pub(crate) fn wait_for<T>(&self, guard: &mut Guard<'_, T>, _: Duration) {
            self.wait(guard);
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
