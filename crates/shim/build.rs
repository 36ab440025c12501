//! Link options of the preloaded library.

fn main() {
    // The hooks must outlive every thread and exit handler of the program: never unload.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Standard streams that lead to a volume are replaced before any other library's constructor keeps a copy.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rerun-if-changed=build.rs");
}
