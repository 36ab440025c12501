//! Link options of the preloaded library.

use std::process::Command;

fn main() {
    // The hooks must outlive every thread and exit handler of the program: never unload.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Standard streams that lead to a volume are replaced before any other library's constructor keeps a copy.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    if let Some(unwinder) = static_unwinder() {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--whole-archive,{unwinder},--no-whole-archive");
    }
    println!("cargo:rerun-if-changed=build.rs");
}

/// The compiler's unwinder as an archive: the shared one is a library more that each program loads, and its constructor asks the
/// processor for its features, which costs a virtual machine more than all else that the loader does for it.
fn static_unwinder() -> Option<String> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let found = Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output().ok()?;
    let path = String::from_utf8(found.stdout).ok()?.trim().to_string();
    // Without one the compiler gives the name back.
    std::path::Path::new(&path).is_absolute().then_some(path)
}
