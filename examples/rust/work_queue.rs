//! A queue of work, whose workers take each task once, with conditional writes.
//!
//! Each task is an object: its value is its state, and a worker takes it by changing that state.
//! The write has the version that the worker has read as its condition, so of two workers only one
//! takes the task.
//!
//! ```text
//! cargo run -p thunderhead-examples --bin work_queue thunderhead://localhost
//! ```

use thunderhead_client::{Client, Condition, Error, Object, Options, TableId, Version};

const TASKS: usize = 200;
const WORKERS: usize = 8;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "thunderhead://localhost".to_owned());
    let options = Options::of_url(&url)?;
    let mut db = Client::connect(&options)?;
    let (tasks, results) = (db.ensure_table("tasks", 1)?, db.ensure_table("results", 1)?);
    for written in db.put_many(tasks, (0..TASKS).map(|it| (it.to_string(), "open"))) {
        written?;
    }
    // A client is for one thread at a time, so each worker makes its own.
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let start = |worker| {
            let options = &options;
            scope.spawn(move || work(&mut Client::connect(options)?, tasks, results, worker))
        };
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        let ended = workers.into_iter().map(|it| it.join().expect("a worker does not panic"));
        ended.collect::<Result<_>>()
    })?;
    println!("tasks of each worker: {counts:?}");
    if counts.iter().sum::<usize>() != TASKS {
        return Err("a task was done twice or not at all".into());
    }
    println!("all {TASKS} tasks are done, each once");
    db.drop_table("tasks")?;
    db.drop_table("results")?;
    Ok(())
}

/// Takes tasks until all are done. Returns the number of tasks that this worker did.
fn work(db: &mut Client, tasks: TableId, results: TableId, worker: usize) -> Result<usize> {
    let mut count = 0;
    let open = db.scan(tasks).collect::<std::result::Result<Vec<Object>, Error>>()?;
    for task in open.iter().filter(|task| task.value == b"open") {
        let Some(taken) = take(db, tasks, task, worker)? else { continue };
        let number: u64 = std::str::from_utf8(&task.key)?.parse()?;
        db.put(results, &task.key, (number * number).to_string().as_bytes(), Condition::Always)?;
        db.put(tasks, &task.key, b"done", Condition::VersionIs(taken))?;
        count += 1;
    }
    Ok(count)
}

/// Takes a task. Returns its new version, or `None` if another worker was faster.
fn take(db: &mut Client, tasks: TableId, task: &Object, worker: usize) -> Result<Option<Version>> {
    let state = format!("taken by {worker}");
    let is_unchanged = Condition::VersionIs(task.version);
    match db.put(tasks, &task.key, state.as_bytes(), is_unchanged) {
        Ok(version) => Ok(Some(version)),
        Err(Error::ConditionFailed { .. }) => Ok(None),
        // The write may have been done. The state names this worker if it was.
        Err(error) if error.is_unknown() => {
            let found = db.get(tasks, &task.key)?;
            Ok(found.filter(|(_, value)| value == state.as_bytes()).map(|(version, _)| version))
        }
        Err(error) => Err(error.into()),
    }
}
