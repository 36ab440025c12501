//! What programs of every day take on a volume, beside the disk's file system: a tree of small files unpacked, listed,
//! searched, copied and removed, git's work on it, sources compiled, and transactions of SQLite and Redis.

use crate::Common;
use crate::db_bench::output_of;
use crate::disk::{Scratch, format, under};
use crate::error::BenchError;
use crate::pairs::{Comparison, Unit};
use crate::rounds;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tree: directories, files in each.
const DIRECTORIES: u32 = 60;
const FILES: u32 = 70;
/// Bytes of its files, in turns.
const SIZES: [usize; 4] = [300, 2_000, 5_000, 12_000];

/// Sources: files in C, and in Python.
const SOURCES: u32 = 100;
const FUNCTIONS: u32 = 20;

/// Each step in an empty directory.
const SCRIPT: &str = include_str!("programs.sh");

fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    fs::write(path, text).map_err(|e| BenchError::io(path.display(), e))
}

fn directory(path: &Path) -> Result<(), BenchError> {
    fs::create_dir_all(path).map_err(|e| BenchError::io(path.display(), e))
}

/// Packs a tree that `fill` writes.
fn pack(
    scratch: &Scratch,
    name: &str,
    fill: fn(&Path) -> Result<(), BenchError>,
) -> Result<PathBuf, BenchError> {
    let (packed, top) = (scratch.fresh(&format!("{name}.tar"))?, scratch.fresh(name)?);
    fill(&top)?;
    let parent = top.parent().unwrap_or(Path::new("."));
    output_of(Command::new("tar").arg("-C").arg(parent).arg("-cf").arg(&packed).arg(name))?;
    scratch.fresh(name)?;
    Ok(packed)
}

/// Small files to be copied and searched.
fn fill_tree(top: &Path) -> Result<(), BenchError> {
    for number in 0..DIRECTORIES {
        let parent = top.join(format!("d{}", number % 6)).join(format!("directory-{number}"));
        directory(&parent)?;
        for file in 0..FILES {
            let line = format!("file {file} of directory {number}\n");
            let text = line.repeat(SIZES[file as usize % SIZES.len()] / line.len());
            write(&parent.join(format!("file-{file}.c")), &text)?;
        }
    }
    Ok(())
}

/// A program in C of many files, and modules in Python.
fn fill_sources(top: &Path) -> Result<(), BenchError> {
    let (c, python) = (top.join("c"), top.join("python"));
    directory(&c)?;
    directory(&python)?;
    let of_each = |line: &dyn Fn(u32) -> String, count: u32| (0..count).map(line).collect::<String>();
    for file in 0..SOURCES {
        let function = |n: u32| format!("int f{file}_{n}(int x) {{ return printf(\"%d\", x + {n}); }}\n");
        let text = format!("#include <stdio.h>\n#include \"all.h\"\n{}", of_each(&function, FUNCTIONS));
        write(&c.join(format!("f{file}.c")), &text)?;
        let function = |n: u32| format!("def f{n}(x):\n    return [x + {n} for x in range(x)]\n\n\n");
        write(&python.join(format!("module_{file}.py")), &of_each(&function, FUNCTIONS))?;
    }
    write(&c.join("all.h"), &of_each(&|file| format!("int f{file}_0(int);\n"), SOURCES))?;
    let calls = of_each(&|file| format!(" + f{file}_0({file})"), SOURCES);
    write(&c.join("main.c"), &format!("#include \"all.h\"\nint main(void) {{ return (0{calls}) == 0; }}\n"))?;
    let make = "objects = $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(objects)\n\tcc -o $@ $^\n$(objects): all.h\n";
    write(&c.join("Makefile"), make)
}

/// Compares each step.
pub fn compare(common: &Common, size: &str) -> Result<Vec<Comparison>, BenchError> {
    let weft = common.weft()?;
    let scratch = Scratch::new(common, "programs")?;
    let packed = [pack(&scratch, "tree", fill_tree)?, pack(&scratch, "work", fill_sources)?];
    let (native, image) = (scratch.fresh("native")?, scratch.fresh("vol.img")?);
    fs::create_dir(&native).map_err(|e| BenchError::io(native.display(), e))?;
    let script = |mut command: Command, dir: &Path| {
        output_of(&mut Command::new("sync"))?;
        command.args(["-c", SCRIPT, "bash"]).arg(dir).args(&packed);
        Ok(command)
    };
    rounds::compare(
        "",
        Unit::Seconds,
        common.pairs,
        || script(Command::new("bash"), &native),
        || {
            scratch.fresh("vol.img")?;
            format(&weft, &image, size)?;
            script(under(&weft, &image, "bash"), Path::new("/weft"))
        },
    )
}
