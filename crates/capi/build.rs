//! Gives the shared library its soname, and lets it stay in memory.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The number changes with each release that breaks programs, and only then.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libthunderhead.so.0");
    // The driver thread of a queue may still end when the program unloads the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // References to missing symbols are found now, and not by the user's linker.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
}
