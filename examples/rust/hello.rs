//! The first program: write, read, write under a condition, and look at all objects.
//!
//! ```text
//! thunderhead dev &
//! cargo run -p thunderhead-examples --bin hello thunderhead://localhost
//! ```

use thunderhead_client::{Client, Condition, Error, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "thunderhead://localhost".to_owned());
    let mut db = Client::connect(&Options::of_url(&url)?)?;
    let users = db.ensure_table("users", 1)?;

    let version = db.put(users, b"ada", b"analyst", Condition::Always)?;
    println!("wrote version {}", version.0);

    // A missing object is no error.
    println!("charles exists: {}", db.get(users, b"charles")?.is_some());

    // This write happens only if the object still has the version that was written above.
    match db.put(users, b"ada", b"countess", Condition::VersionIs(version)) {
        Ok(_) => {}
        Err(Error::ConditionFailed { version }) => {
            println!("another program was faster; the version is {}", version.0);
        }
        // The update was sent, and no answer came in time. The read below tells.
        Err(error) if error.is_unknown() => println!("{error}"),
        Err(error) => return Err(error.into()),
    }
    if let Some((version, value)) = db.get(users, b"ada")? {
        println!("ada is a {}, version {}", String::from_utf8_lossy(&value), version.0);
    }

    // Many operations at once take hardly longer than one.
    for written in db.put_many(users, [("grace", "admiral"), ("alan", "logician")]) {
        written?;
    }
    for object in db.scan(users) {
        let object = object?;
        let (key, value) = (&object.key, &object.value);
        println!("{}: {}", String::from_utf8_lossy(key), String::from_utf8_lossy(value));
    }
    db.close();
    Ok(())
}
