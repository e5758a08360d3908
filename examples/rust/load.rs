//! Loads many objects and shows the progress.
//!
//! It writes many objects in each call: that is the fastest way from one thread. An object that is
//! refused does not stop the others. The program may be run again, because it writes the same
//! objects.
//!
//! ```text
//! cargo run -p thunderhead-examples --bin load thunderhead://localhost 100000
//! ```

use std::io::Write;
use std::time::Duration;
use thunderhead_client::{Client, Options};

const BATCH: usize = 500;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "thunderhead://localhost".to_owned());
    let total: usize = arguments.next().map_or(Ok(100_000), |it| it.parse())?;
    // A server that is short of memory or backups makes writes wait, so the deadline is generous.
    let options = Options::of_url(&url)?.deadline(Some(Duration::from_secs(60)));
    let mut db = Client::connect(&options)?;
    let profiles = db.ensure_table("profiles", 1)?;

    let mut refused = 0;
    for first in (0..total).step_by(BATCH) {
        let batch: Vec<_> = (first..total.min(first + BATCH)).map(object).collect();
        let done = first + batch.len();
        let keys: Vec<_> = batch.iter().map(|(key, _)| key.clone()).collect();
        for (key, result) in keys.iter().zip(db.put_many(profiles, batch)) {
            if let Err(error) = result {
                refused += 1;
                eprintln!("\n{key}: {error}");
            }
        }
        print!("\r{done} of {total} objects, {} %", 100 * done / total);
        std::io::stdout().flush()?;
    }
    println!();

    let sample: Vec<_> = (0..total).step_by(1000).map(|number| object(number).0).collect();
    for found in db.get_many(profiles, &sample) {
        if found?.is_none() && refused == 0 {
            return Err("an object is missing".into());
        }
    }
    println!("{} objects are loaded, {refused} were refused", total - refused);
    Ok(())
}

/// The object of this number. Read a file here.
fn object(number: usize) -> (String, String) {
    (format!("user:{number:08}"), format!("the profile of user {number}"))
}
