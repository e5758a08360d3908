//! Counts, and never counts twice, although the server may be killed meanwhile.
//!
//! The client sends an update again until it has an answer. Each update has an identity, so the
//! server does it once, also if the server crashed after the first attempt and has recovered since.
//! No code for retries is needed here.
//!
//! Try it: start `thunderhead dev`, run this program, and kill the server with `kill -9` and start
//! it again while the program counts.
//!
//! ```text
//! cargo run -p thunderhead-examples --bin counter thunderhead://localhost 10000
//! ```

use std::time::Duration;
use thunderhead_client::{Client, Number, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "thunderhead://localhost".to_owned());
    let rounds: i64 = arguments.next().map_or(Ok(10_000), |it| it.parse())?;
    // The deadline is the longest time for which the server may be away.
    let options = Options::of_url(&url)?.deadline(Some(Duration::from_secs(60)));
    let mut db = Client::connect(&options)?;
    let visits = db.ensure_table("visits", 1)?;

    let mut count = |by: i64| -> Result<i64, Box<dyn std::error::Error>> {
        match db.increment(visits, b"home", Number::Integer(by))? {
            (_, Number::Integer(sum)) => Ok(sum),
            (_, sum) => Err(format!("the sum is {sum:?}").into()),
        }
    };
    let start = count(0)?;
    let mut total = start;
    for round in 1..=rounds {
        total = count(1)?;
        if round % 100 == 0 {
            println!("counted {round}");
        }
    }
    println!("counted {rounds} times, from {start} to {total}");
    if total != start + rounds {
        return Err("another program counted too, or the server counted twice".into());
    }
    Ok(())
}
