//! Keeps the library loaded until the process ends.
//!
//! Node unloads a native part when its last environment ends, for example a worker thread. A driver
//! thread may still be at work then, and would run code that is no longer there.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
