//! A value that one thread promises and a task waits for.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

struct Slot<T>(Mutex<State<T>>);

struct State<T> {
    value: Option<T>,
    is_over: bool,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, value: Option<T>) {
        let mut state = self.lock();
        if state.is_over {
            return;
        }
        (state.value, state.is_over) = (value, true);
        let waker = state.waker.take();
        // The woken task may run at once and poll, so the lock is released first.
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The sender's end: sets the value, or ends the wait when it is dropped.
pub(crate) struct Promise<T>(Arc<Slot<T>>);

/// The receiver's end: waits for the value. `None` if the promise was dropped without a value.
pub(crate) struct PromisedValue<T>(Arc<Slot<T>>);

/// Makes both ends.
pub(crate) fn promise<T>() -> (Promise<T>, PromisedValue<T>) {
    let state = State { value: None, is_over: false, waker: None };
    let slot = Arc::new(Slot(Mutex::new(state)));
    (Promise(Arc::clone(&slot)), PromisedValue(slot))
}

impl<T> Promise<T> {
    pub(crate) fn keep(self, value: T) {
        self.0.end(Some(value));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.0.end(None);
    }
}

impl<T> Future for PromisedValue<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        if state.is_over {
            return Poll::Ready(state.value.take());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_promise_wakes_its_receiver_once_whether_kept_or_dropped() {
        for kept in [true, false] {
            let count = Arc::new(Count::default());
            let waker = Arc::clone(&count).into();
            let mut context = Context::from_waker(&waker);
            let (promise, promised) = promise();
            let mut promised = pin!(promised);
            for _ in 0..2 {
                assert_eq!(promised.as_mut().poll(&mut context), Poll::Pending);
            }
            let expected = if kept {
                promise.keep(7);
                Some(7)
            } else {
                drop(promise);
                None
            };
            assert_eq!(count.0.load(Ordering::SeqCst), 1);
            assert_eq!(promised.poll(&mut context), Poll::Ready(expected));
        }
        // No task waits for the value: nothing happens.
        let (promise, promised) = promise();
        drop(promised);
        promise.keep(1);
    }
}
