//! Futures that live on the reactor's thread.
//!
//! They run once a turn, in the order in which they were woken. A task that is woken during a turn
//! runs in the next one, so that no chain of wake-ups can keep a turn from ending. Tasks need not
//! be `Send`. Their wakers are, and other threads may use them. When the process ends, its tasks
//! are dropped where they wait.

use crate::alarm::Alarm;
use crate::time::Time;
use crate::timers::{TimerId, Timers};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// The tasks of a reactor. Clones are handles to the same tasks.
#[derive(Clone)]
pub struct Tasks(Rc<State>);

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct State {
    tasks: RefCell<BTreeMap<u64, Task>>,
    /// Spawned since the last turn.
    new: RefCell<Vec<(u64, Task)>>,
    ready: Arc<ReadyQueue>,
    timers: RefCell<Timers<Waker>>,
    now: Cell<Time>,
    count: Cell<u64>,
}

struct ReadyQueue {
    queue: Mutex<VecDeque<u64>>,
    alarm: Alarm,
}

struct TaskWaker {
    task: u64,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.task);
        self.ready.alarm.ring();
    }
}

impl ReadyQueue {
    fn take(&self) -> VecDeque<u64> {
        std::mem::take(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tasks {
    /// Returns an empty set. A task that is woken rings the alarm.
    #[must_use]
    pub fn new(alarm: Alarm, now: Time) -> Tasks {
        let ready = Arc::new(ReadyQueue { queue: Mutex::default(), alarm });
        Tasks(Rc::new(State {
            tasks: RefCell::default(),
            new: RefCell::default(),
            ready,
            timers: RefCell::default(),
            now: Cell::new(now),
            count: Cell::new(0),
        }))
    }

    /// Begins a task; it runs for the first time in the next turn.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let id = self.0.count.get();
        self.0.count.set(id + 1);
        self.0.new.borrow_mut().push((id, Box::pin(task)));
        let ready = Arc::clone(&self.0.ready);
        Waker::from(Arc::new(TaskWaker { task: id, ready })).wake();
    }

    /// Begins a turn: sleeps that start from now on count from this time.
    #[inline]
    pub fn set_now(&self, now: Time) {
        self.0.now.set(now);
    }

    /// Runs the tasks that are ready. Returns whether any task ran.
    pub fn run(&self, now: Time) -> bool {
        self.0.now.set(now);
        loop {
            let due = self.0.timers.borrow_mut().due(now);
            let Some(waker) = due else { break };
            waker.wake();
        }
        let ready = self.0.ready.take();
        for id in &ready {
            let new = std::mem::take(&mut *self.0.new.borrow_mut());
            self.0.tasks.borrow_mut().extend(new);
            let task = self.0.tasks.borrow_mut().remove(id);
            // A task may be woken twice, or after its end.
            let Some(mut task) = task else { continue };
            let waker =
                Waker::from(Arc::new(TaskWaker { task: *id, ready: Arc::clone(&self.0.ready) }));
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                self.0.tasks.borrow_mut().insert(*id, task);
            }
        }
        !ready.is_empty()
    }

    /// Returns the time at which the next task wants to run.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.0.timers.borrow().next()
    }

    /// Returns the number of tasks that have not ended.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.tasks.borrow().len() + self.0.new.borrow().len()
    }

    /// Drops all tasks where they wait, because the process ends. They hold handles to this set, so
    /// it would never be dropped by itself.
    pub fn clear(&self) {
        let tasks = std::mem::take(&mut *self.0.tasks.borrow_mut());
        let new = std::mem::take(&mut *self.0.new.borrow_mut());
        drop((tasks, new));
    }

    /// Returns the time of this turn.
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.now.get()
    }

    /// Waits until a time.
    #[must_use]
    pub fn sleep_until(&self, until: Time) -> Sleep {
        Sleep { tasks: self.clone(), until, timer: None }
    }

    /// Waits for a duration that begins with this turn.
    #[must_use]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }
}

/// Waits until a time. See [`Tasks::sleep`].
pub struct Sleep {
    tasks: Tasks,
    until: Time,
    timer: Option<TimerId>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let state = Rc::clone(&self.tasks.0);
        if let Some(timer) = self.timer.take() {
            state.timers.borrow_mut().cancel(timer);
        }
        if state.now.get() >= self.until {
            return Poll::Ready(());
        }
        self.timer = Some(state.timers.borrow_mut().set(self.until, context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.tasks.0.timers.borrow_mut().cancel(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_sleep_and_wake_in_order() {
        let alarm = Alarm::sim();
        let tasks = Tasks::new(alarm.clone(), Time(0));
        let log = Rc::new(RefCell::new(Vec::new()));
        for (name, nanos) in [("late", 30), ("early", 10)] {
            let (tasks_inside, log) = (tasks.clone(), Rc::clone(&log));
            tasks.spawn(async move {
                tasks_inside.sleep(Duration::from_nanos(nanos)).await;
                log.borrow_mut().push((name, tasks_inside.now()));
            });
        }
        assert!(alarm.is_ringing());
        assert!(tasks.run(Time(0)));
        assert_eq!(tasks.next(), Some(Time(10)));
        assert!(tasks.run(Time(10)));
        assert!(!tasks.run(Time(29)));
        assert!(tasks.run(Time(31)));
        assert_eq!(*log.borrow(), [("early", Time(10)), ("late", Time(31))]);
        assert_eq!((tasks.count(), tasks.next()), (0, None));
    }

    #[test]
    fn a_task_may_spawn_another_and_is_dropped_with_the_process() {
        let tasks = Tasks::new(Alarm::sim(), Time(0));
        let held = Rc::new(());
        let (inside, inner) = (tasks.clone(), Rc::clone(&held));
        tasks.spawn(async move {
            let again = inside.clone();
            inside.spawn(async move {
                again.sleep(Duration::from_secs(1)).await;
                drop(inner);
            });
        });
        tasks.run(Time(0));
        tasks.run(Time(0));
        assert_eq!(tasks.count(), 1);
        assert_eq!(Rc::strong_count(&held), 2);
        tasks.clear();
        assert_eq!(Rc::strong_count(&held), 1);
    }
}
