//! Primitives for the tasks of one thread: a signal, a lock, the first of two futures, all of many
//! futures.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use thunderhead_runtime::tasks::Sleep;

/// Signals that some state may have changed. Waiting tasks look again.
#[derive(Default)]
pub(crate) struct Signal {
    raised: Cell<u64>,
    waiters: Cell<u64>,
    wakers: RefCell<BTreeMap<u64, Waker>>,
}

impl Signal {
    /// Wakes all waiting tasks.
    pub(crate) fn raise(&self) {
        self.raised.set(self.raised.get() + 1);
        for waker in std::mem::take(&mut *self.wakers.borrow_mut()).into_values() {
            waker.wake();
        }
    }

    /// Returns the present count. A task reads it before it looks, so that it misses no later
    /// signal.
    pub(crate) fn seen(&self) -> u64 {
        self.raised.get()
    }

    /// Waits until the signal is raised after `seen`.
    pub(crate) fn after(&self, seen: u64) -> After<'_> {
        After { signal: self, seen, waiter: None }
    }
}

/// See [`Signal::after`].
pub(crate) struct After<'a> {
    signal: &'a Signal,
    seen: u64,
    waiter: Option<u64>,
}

impl Future for After<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let signal = self.signal;
        if signal.raised.get() != self.seen {
            return Poll::Ready(());
        }
        let waiter = *self.waiter.get_or_insert_with(|| {
            signal.waiters.set(signal.waiters.get() + 1);
            signal.waiters.get()
        });
        signal.wakers.borrow_mut().insert(waiter, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for After<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.signal.wakers.borrow_mut().remove(&waiter);
        }
    }
}

/// A lock that a task may hold while it waits. Waiting tasks get it mostly in the order in which
/// they came.
#[derive(Default)]
pub(crate) struct Lock {
    held: Cell<bool>,
    freed: Signal,
}

/// Frees a lock when it is dropped.
pub(crate) struct Guard<'a>(&'a Lock);

impl Lock {
    /// Waits until it is free.
    pub(crate) async fn lock(&self) -> Guard<'_> {
        loop {
            let seen = self.freed.seen();
            if !self.held.replace(true) {
                return Guard(self);
            }
            self.freed.after(seen).await;
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.held.set(false);
        self.0.freed.raise();
    }
}

/// Returns a future's result, unless the time limit comes first.
pub(crate) async fn within<T>(limit: Sleep, future: impl Future<Output = T>) -> Option<T> {
    let (mut limit, mut future) = (pin!(limit), pin!(future));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => limit.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Returns the results of all futures, in their order.
pub(crate) async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *output = Some(value);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::time::Duration;
    use thunderhead_runtime::Time;
    use thunderhead_runtime::alarm::Alarm;
    use thunderhead_runtime::tasks::Tasks;

    #[test]
    fn a_lock_goes_to_the_next_task_and_is_freed_when_its_holder_is_dropped() {
        let tasks = Tasks::new(Alarm::sim(), Time(0));
        let (lock, log) = (Rc::new(Lock::default()), Rc::new(RefCell::new(Vec::new())));
        for number in 0..3 {
            let (lock, log, inside) = (Rc::clone(&lock), Rc::clone(&log), tasks.clone());
            tasks.spawn(async move {
                let held = async {
                    let _guard = lock.lock().await;
                    log.borrow_mut().push(number);
                    inside.sleep(Duration::from_nanos(100)).await;
                };
                // The first is dropped while it waits.
                let limit = if number == 0 { 10 } else { 1000 };
                let _ = within(inside.sleep(Duration::from_nanos(limit)), held).await;
            });
        }
        for time in [0, 0, 5, 20, 20, 115, 125, 125, 230] {
            tasks.run(Time(time));
        }
        assert_eq!(*log.borrow(), [0, 1, 2]);
        assert_eq!(tasks.count(), 0);
        assert!(lock.freed.wakers.borrow().is_empty(), "a dropped waiter is forgotten");
    }

    #[test]
    fn all_wait_for_the_slowest_and_keep_their_order() {
        let tasks = Tasks::new(Alarm::sim(), Time(0));
        let log = Rc::new(RefCell::new(Vec::new()));
        let (inside, told) = (tasks.clone(), Rc::clone(&log));
        tasks.spawn(async move {
            let futures = [30, 10, 20].map(|nanos| {
                let tasks = inside.clone();
                async move {
                    tasks.sleep(Duration::from_nanos(nanos)).await;
                    nanos
                }
            });
            told.replace(all(futures.into()).await);
        });
        for time in [0, 10, 20, 29] {
            tasks.run(Time(time));
            assert!(log.borrow().is_empty());
        }
        tasks.run(Time(30));
        assert_eq!(*log.borrow(), [30, 10, 20]);
    }
}
