//! `include/weft.h` is what the sources say. `WEFT_UPDATE=1` writes it anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const SOURCES: [&str; 21] = [
    "code",
    "error",
    "monitor",
    "tag",
    "raw",
    "function",
    "policy",
    "store",
    "keyed",
    "snodes",
    "maps",
    "snapshots",
    "sessions",
    "files",
    "values",
    "chain",
    "batch",
    "file_operations",
    "value_operations",
    "answer",
    "one_call",
];

/// `WeftMonitor` as C writes it: `weft_monitor`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// A Rust type as C writes it, in front of a name.
fn c_type(rust: &str) -> String {
    if let Some(inner) = rust.strip_prefix("*mut ") {
        return format!("{}*", spaced(c_type(inner)));
    }
    if let Some(inner) = rust.strip_prefix("*const ") {
        return format!("const {}*", spaced(c_type(inner)));
    }
    match rust {
        "u8" => "uint8_t".into(),
        "u16" => "uint16_t".into(),
        "u32" => "uint32_t".into(),
        "u64" => "uint64_t".into(),
        "i32" => "int".into(),
        "i64" => "int64_t".into(),
        "f64" => "double".into(),
        "usize" => "size_t".into(),
        "c_char" => "char".into(),
        name if name.starts_with("Weft") => snake(name),
        other => panic!("the header has no type for {other}"),
    }
}

fn spaced(c: String) -> String {
    if c.ends_with('*') { c } else { format!("{c} ") }
}

fn declared(c: String, name: &str) -> String {
    format!("{}{name}", spaced(c))
}

/// Doc comments, without what is for Rust alone.
fn comment(lines: &[String], indent: &str) -> String {
    let text: Vec<&str> = lines.iter().map(String::as_str).take_while(|line| *line != "# Safety").collect();
    let duty: Vec<&str> =
        lines.iter().map(String::as_str).skip_while(|line| *line != "# Safety").skip(1).collect();
    let mut all: Vec<String> = text.join(" ").trim().split("  ").map(str::to_string).collect();
    if !duty.is_empty() {
        all.push(format!("Caller: {}", duty.join(" ")));
    }
    format!("{indent}/* {} */\n", all.join(&format!("\n{indent}   ")).replace('`', ""))
}

fn header() -> String {
    let mut constants = String::new();
    let mut types = String::new();
    let mut functions = String::new();
    for source in SOURCES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(format!("{source}.rs"));
        let text = std::fs::read_to_string(path).unwrap();
        let mut docs: Vec<String> = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let trimmed = line.trim();
            if let Some(doc) = trimmed.strip_prefix("///") {
                docs.push(doc.trim().to_string());
                continue;
            }
            if trimmed.starts_with("#[") {
                continue;
            }
            let about = std::mem::take(&mut docs);
            if let Some(rest) = line.strip_prefix("pub const ") {
                let (name, rest) = rest.split_once(':').unwrap();
                let value = rest.split_once('=').unwrap().1.trim().trim_end_matches(';');
                write!(constants, "{}#define {name} {value}\n\n", comment(&about, "").replace("\n   ", " "))
                    .unwrap();
            } else if let Some(rest) = line.strip_prefix("pub struct ") {
                let name = rest.split(['(', ' ']).next().unwrap();
                types += &comment(&about, "");
                let c = snake(name);
                if !rest.ends_with('{') {
                    writeln!(types, "typedef struct {c} {c};\n").unwrap();
                    continue;
                }
                let (mut docs, mut fields) = (Vec::new(), String::new());
                for field in lines.by_ref().map(str::trim).take_while(|line| *line != "}") {
                    if let Some(doc) = field.strip_prefix("///") {
                        docs.push(doc.trim().to_string());
                    } else if let Some((name, rust)) =
                        field.strip_prefix("pub ").and_then(|f| f.split_once(": "))
                    {
                        fields += &comment(&std::mem::take(&mut docs), "    ");
                        writeln!(fields, "    {};", declared(c_type(rust.trim_end_matches(',')), name))
                            .unwrap();
                    }
                }
                // C has no structures without members: what C cannot see is only named.
                match fields.as_str() {
                    "" => writeln!(types, "typedef struct {c} {c};\n").unwrap(),
                    _ => writeln!(types, "typedef struct {c} {{\n{fields}}} {c};\n").unwrap(),
                }
            } else if line.starts_with("pub extern \"C\"") || line.starts_with("    fn weft_") {
                let mut whole = line.to_string();
                while !whole.trim_end().ends_with('{') {
                    whole += " ";
                    whole += lines.next().unwrap().trim();
                }
                let (name, rest) = whole.split_once("fn ").unwrap().1.split_once('(').unwrap();
                let (arguments, result) = rest.split_once(')').unwrap();
                let arguments: Vec<String> = arguments
                    .split(',')
                    .map(str::trim)
                    .filter(|argument| !argument.is_empty())
                    .map(|argument| argument.split_once(": ").unwrap())
                    .map(|(name, rust)| declared(c_type(rust), name))
                    .collect();
                let result = result.trim().trim_end_matches('{').trim();
                // In 'exports!' a function without a result returns a code.
                let result = match result.strip_prefix("-> ") {
                    Some("()") => "void".into(),
                    Some(rust) => c_type(rust),
                    None => "int".into(),
                };
                let arguments = if arguments.is_empty() { "void".into() } else { arguments.join(", ") };
                write!(functions, "{}{}({arguments});\n\n", comment(&about, ""), declared(result, name))
                    .unwrap();
            }
        }
    }
    format!(
        "/* Flash at three levels, tag stores and programs of file operations, for C. Made from the sources of the crate weft-capi; do \
         not edit.\n   Functions return 0 or a negative WEFT_E... code, unless they say otherwise.\n   A signal handler does not call \
         them: they allocate memory. One that comes in the middle of a function, and calls one in its thread all the same, is refused:\n   \
         WEFT_EBUSY with the errno EDEADLK. Nor does it leave a function by siglongjmp. */\n#ifndef WEFT_H\n#define WEFT_H\n\n#include <stddef.h>\n#include \
         <stdint.h>\n\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{constants}{types}{functions}#ifdef \
         __cplusplus\n}}\n#endif\n\n#endif\n"
    )
}

#[test]
fn the_header_is_what_the_sources_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/weft.h");
    let wanted = header();
    if std::env::var("WEFT_UPDATE").is_ok() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(
        found == wanted,
        "include/weft.h is out of date; run: WEFT_UPDATE=1 cargo test -p weft-capi --test header"
    );
    assert!(wanted.matches("weft_ftl_").count() >= 5 && wanted.contains("int weft_address_mapper("));
    assert!(wanted.contains("int weft_commit_tx(weft_tx *tx);"));
}

#[test]
fn the_header_is_strict_c99_and_cpp() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/weft.h");
    for (compiler, language, standard) in [("cc", "c", "c99"), ("cc", "c", "c11"), ("c++", "c++", "c++11")] {
        let compiled = Command::new(compiler)
            .args(["-x", language, &format!("-std={standard}"), "-pedantic", "-Wall", "-Wextra", "-Werror"])
            // As a program includes it, not as the file to be compiled.
            .args(["-fsyntax-only", "/dev/null", "-include"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{standard}: {}", String::from_utf8_lossy(&compiled.stderr));
    }
}
