//! Texts of programs: what each gives, and what is said of mistakes.

use super::*;
use weft_vfs::compound::{
    Access, Allocate, Arith, At, Bytes, Codec, Compare, Dir, Field, File, Guard, Kind, Num, Operand, Ref,
};
use weft_vfs::{RenameFlags, XattrMode};

/// Operations whose values the tested one can use: a file, its attributes, bytes and a number.
const BEFORE: &str = r#"
[[op]]
do = "open"
name = "f"
path = "/f"
access = "read_write"
[[op]]
do = "stat"
name = "a"
file = "$f"
[[op]]
do = "read"
name = "b"
file = "$f"
len = 10
[[op]]
do = "len"
name = "n"
bytes = "$b"
"#;
const FILE: File = File(Ref(0));
const ATTR: Ref = Ref(1);
const BYTES: Ref = Ref(2);
const NUM: Num = Num::Of(Ref(3));

fn form(text: &str) -> Read<Form> {
    read(text, "p.toml")
}

/// The last operation of a program with these keys behind the others.
fn last(keys: &str) -> Op {
    let form = form(&format!("{BEFORE}[[op]]\n{keys}\n")).unwrap_or_else(|error| panic!("{error}"));
    form.program.ops.last().unwrap().clone()
}

fn lit(text: &str) -> Bytes {
    Bytes::Lit(text.into())
}

#[test]
fn each_kind_is_read_with_all_its_keys_and_with_the_defaults_of_those_that_are_left_out() {
    let start = Dir::Start;
    let at = Dir::At(FILE);
    let path = || lit("p");
    let guard = Guard {
        left: Operand::Bytes(Bytes::Of(BYTES)),
        compare: Compare::Equal,
        right: Operand::Bytes(lit("x")),
    };
    let file = FILE;
    let table = [
        ("do='open'\npath='p'", Kind::Open { dir: start, path: path(), access: Access::Read, follow: true }),
        (
            "do='open'\npath='p'\ndir='$f'\naccess='path'\nfollow=false",
            Kind::Open { dir: at, path: path(), access: Access::Path, follow: false },
        ),
        ("do='create'\npath='p'", Kind::Create { dir: start, path: path(), perm: 0o644, exclusive: false }),
        (
            "do='create'\npath='p'\ndir='$f'\nperm='0600'\nexclusive=true",
            Kind::Create { dir: at, path: path(), perm: 0o600, exclusive: true },
        ),
        ("do='close'\nfile='$f'", Kind::Close { file }),
        ("do='stat'\nfile='$f'", Kind::Stat { file }),
        ("do='field'\nattr='$a'\nfield='mtime_ns'", Kind::Field { attr: ATTR, field: Field::MtimeNs }),
        ("do='read'\nfile='$f'\nlen=7", Kind::Read { file, offset: Num::Lit(0), len: Num::Lit(7) }),
        ("do='read'\nfile='$f'\noffset='$n'\nlen='$n'", Kind::Read { file, offset: NUM, len: NUM }),
        ("do='write'\nfile='$f'\ndata='p'", Kind::Write { file, at: At::Offset(Num::Lit(0)), data: path() }),
        (
            "do='write'\nfile='$f'\nat='$n'\ndata='$b'",
            Kind::Write { file, at: At::Offset(NUM), data: Bytes::Of(BYTES) },
        ),
        ("do='write'\nfile='$f'\nat='end'\ndata='p'", Kind::Write { file, at: At::End, data: path() }),
        ("do='truncate'\nfile='$f'\nsize=1_000", Kind::Truncate { file, size: Num::Lit(1000) }),
        ("do='truncate'\nfile='$f'\nsize=0x10", Kind::Truncate { file, size: Num::Lit(16) }),
        (
            "do='fallocate'\nfile='$f'\nlen=7",
            Kind::Fallocate { file, mode: Allocate::Extend, offset: Num::Lit(0), len: Num::Lit(7) },
        ),
        (
            "do='fallocate'\nfile='$f'\nmode='punch_hole'\noffset=1\nlen=7",
            Kind::Fallocate { file, mode: Allocate::PunchHole, offset: Num::Lit(1), len: Num::Lit(7) },
        ),
        ("do='mkdir'\npath='p'", Kind::Mkdir { dir: start, path: path(), perm: 0o755 }),
        ("do='mkdir'\npath='p'\ndir='$f'\nperm=0o1777", Kind::Mkdir { dir: at, path: path(), perm: 0o1777 }),
        (
            "do='symlink'\ntarget='t'\npath='p'\ndir='$f'",
            Kind::Symlink { target: lit("t"), dir: at, path: path() },
        ),
        (
            "do='link'\npath='p'\nnew_path='q'\nto='$f'",
            Kind::Link { dir: start, path: path(), to: at, new_path: lit("q") },
        ),
        (
            "do='rename'\npath='p'\nnew_path='q'",
            Kind::Rename {
                dir: start,
                path: path(),
                to: start,
                new_path: lit("q"),
                flags: RenameFlags::empty(),
            },
        ),
        (
            "do='rename'\npath='p'\ndir='$f'\nnew_path='q'\nflags='exchange'",
            Kind::Rename {
                dir: at,
                path: path(),
                to: start,
                new_path: lit("q"),
                flags: RenameFlags::EXCHANGE,
            },
        ),
        ("do='unlink'\npath='p'", Kind::Unlink { dir: start, path: path() }),
        ("do='rmdir'\npath='p'\ndir='$f'", Kind::Rmdir { dir: at, path: path() }),
        ("do='get_xattr'\nfile='$f'\nxattr='user.x'", Kind::GetXattr { file, name: b"user.x".to_vec() }),
        (
            "do='set_xattr'\nfile='$f'\nxattr='user.x'\nvalue='p'\nmode='create'",
            Kind::SetXattr { file, name: b"user.x".to_vec(), value: path(), mode: XattrMode::Create },
        ),
        (
            "do='remove_xattr'\nfile='$f'\nxattr='user.x'",
            Kind::RemoveXattr { file, name: b"user.x".to_vec() },
        ),
        ("do='sync'\nfile='$f'", Kind::Sync { file }),
        (
            "do='slice'\nbytes='$b'\nlen=3",
            Kind::Slice { bytes: Bytes::Of(BYTES), from: Num::Lit(0), len: Num::Lit(3) },
        ),
        ("do='concat'\nparts=['$b', 'p']", Kind::Concat { parts: vec![Bytes::Of(BYTES), path()] }),
        ("do='len'\nbytes='p'", Kind::Len { bytes: path() }),
        ("do='pack'\nnum='$n'\nwidth=8", Kind::Pack { num: NUM, width: 8 }),
        (
            "do='unpack'\nbytes='$b'\nfrom=2\nwidth=4",
            Kind::Unpack { bytes: Bytes::Of(BYTES), from: Num::Lit(2), width: 4 },
        ),
        (
            "do='arith'\narith='rem'\nleft='$n'\nright=18446744073709551615",
            Kind::Arith { arith: Arith::Rem, left: NUM, right: Num::Lit(u64::MAX) },
        ),
        (
            "do='find'\nbytes='$b'\nwhat='p'",
            Kind::Find { bytes: Bytes::Of(BYTES), what: path(), from: Num::Lit(0) },
        ),
        (
            "do='patch'\nbase='$b'\nat=1\nwith='p'",
            Kind::Patch { base: Bytes::Of(BYTES), at: Num::Lit(1), with: path() },
        ),
        ("do='crc32c'\nbytes='$b'", Kind::Crc32c { bytes: Bytes::Of(BYTES) }),
        ("do='verify'\nbytes='$b'\ncrc='$n'", Kind::Verify { bytes: Bytes::Of(BYTES), crc: NUM }),
        (
            "do='compress'\nbytes='$b'\ncodec='zstd'\nlevel=9",
            Kind::Compress { bytes: Bytes::Of(BYTES), codec: Codec::Zstd, level: 9 },
        ),
        (
            "do='compress'\nbytes='$b'\ncodec='lz4_block'",
            Kind::Compress { bytes: Bytes::Of(BYTES), codec: Codec::Lz4Block, level: 0 },
        ),
        (
            "do='decompress'\nbytes='$b'\ncodec='lz4'\nmax=99",
            Kind::Decompress { bytes: Bytes::Of(BYTES), codec: Codec::Lz4, max: Num::Lit(99) },
        ),
        (
            "do='call'\nmodule='p'\ninput='$b'\nfuel='$n'",
            Kind::Call { module: path(), input: Bytes::Of(BYTES), fuel: NUM },
        ),
        ("do='expect'\nthat=['$b', '==', 'x']", Kind::Expect { guard }),
    ];
    for (keys, expected) in &table {
        assert_eq!(last(keys), Op { kind: expected.clone(), when: None, export: false }, "{keys}");
    }
    for form in KINDS {
        assert!(table.iter().any(|(_, kind)| kind.name() == form.name), "{} is not tested", form.name);
    }
}

#[test]
fn bytes_are_text_hex_a_local_file_or_a_reference_and_two_dollars_are_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("local");
    std::fs::write(&path, [0, 255]).unwrap();
    let from_file = format!("{{ file = '{}' }}", path.display());
    let table = [
        ("'text'", lit("text")),
        ("''", lit("")),
        ("'$$HOME'", lit("$HOME")),
        ("'$$'", lit("$")),
        ("{ hex = '00fF' }", Bytes::Lit(vec![0, 255])),
        (&from_file, Bytes::Lit(vec![0, 255])),
        ("'$b'", Bytes::Of(BYTES)),
    ];
    for (value, bytes) in table {
        assert_eq!(last(&format!("do='len'\nbytes={value}")).kind, Kind::Len { bytes }, "{value}");
    }
}

#[test]
fn the_files_of_a_program_are_read_up_to_the_limit_of_all_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("half");
    std::fs::write(&path, vec![0; INPUT_BYTES_MAX / 2]).unwrap();
    let file = format!("{{ file = '{}' }}", path.display());
    let concat = |parts: &[&str]| format!("[[op]]\ndo='concat'\nparts=[{}]", parts.join(", "));
    form(&concat(&[&file, &file])).unwrap();
    let told = refusal(&concat(&[&file, &file, &file]));
    assert!(told.contains("the files of the program have more than 4194304 bytes"), "{told}");
}

#[test]
fn a_guard_compares_by_the_types_of_its_values() {
    let guard = |text: &str| last(&format!("do='sync'\nfile='$f'\nexport=false\nwhen={text}")).when.unwrap();
    let (n, five) = (Operand::Num(NUM), Operand::Num(Num::Lit(5)));
    for (operator, compare, turns) in [
        ("==", Compare::Equal, false),
        ("!=", Compare::NotEqual, false),
        ("<", Compare::Less, false),
        ("<=", Compare::LessOrEqual, false),
        (">", Compare::Less, true),
        (">=", Compare::LessOrEqual, true),
    ] {
        let (left, right) = if turns { (five.clone(), n.clone()) } else { (n.clone(), five.clone()) };
        assert_eq!(guard(&format!("['$n', '{operator}', 5]")), Guard { left, compare, right });
    }
    let (left, right) = (Operand::Bytes(Bytes::Of(BYTES)), Operand::Bytes(Bytes::Lit(vec![0])));
    assert_eq!(guard("['$b', '!=', { hex = '00' }]"), Guard { left, compare: Compare::NotEqual, right });
}

#[test]
fn the_keys_of_the_program_are_read_and_have_defaults() {
    let (plain, other) =
        (form(BEFORE).unwrap(), form(&format!("policy='each'\ndurable=true\n{BEFORE}")).unwrap());
    assert_eq!((plain.program.policy, plain.program.durable), (Policy::All, false));
    assert_eq!((other.program.policy, other.program.durable), (Policy::Each, true));
    let exported = last("do='stat'\nfile='$f'\nexport=true\nname='s'");
    assert!(exported.export);
}

/// What is wrong with a program whose last operation has these keys, and what would be right.
fn refused(keys: &str) -> String {
    refusal(&format!("{BEFORE}[[op]]\n{keys}\n"))
}

fn refusal(text: &str) -> String {
    let error = form(text).map(|form| panic!("{:?}", form.program)).unwrap_err();
    format!("{error}\n{}", error.problem.right())
}

#[test]
fn each_mistake_is_told_with_its_place_its_value_and_what_would_be_right() {
    let own = "p.toml:21: operation 5";
    let table: &[(&str, &[&str])] = &[
        ("do='move'", &["do = \"move\"", "no such value", "open, create"]),
        ("path='p'", &["p.toml:20: operation 5: do: the key is missing", "one of open, create"]),
        ("do=5", &["do = 5", "no such value"]),
        ("do='read'\nfile='$f'\nlenght=5", &["operation 5 (read): lenght", "no such key of read", "len"]),
        ("do='read'\nfile='$f'", &["operation 5 (read): len: the key is missing", "give a number"]),
        ("do='read'\nfile='$f'\nlen='many'", &["len = \"many\": this is text", "give a number or \"$name\""]),
        ("do='read'\nfile='$f'\nlen=1.5", &["len = 1.5", "with a fraction"]),
        ("do='read'\nfile='$f'\nlen=-1", &["len = -1", "not between 0 and 18446744073709551615"]),
        ("do='sync'\nfile='f'", &["file = \"f\"", "open or create"]),
        ("do='sync'\nfile='$g'", &["file = \"$g\"", "no operation is called 'g'", "f, a, b, n"]),
        ("do='sync'\nname='x'\nfile='$x'", &["operation 5 'x'", "does not come before"]),
        ("do='sync'\nfile='$b'", &["operation 3 'b' (read) as a file", "open or create"]),
        ("do='len'\nbytes='$n'", &["operation 4 'n' (len) as bytes", "gives bytes"]),
        ("do='field'\nattr='$f'\nfield='size'", &["as attributes", "a stat operation"]),
        ("do='field'\nattr='$a'\nfield='name'", &["field = \"name\"", "size, mode, links"]),
        ("do='len'\nbytes=5", &["bytes = 5: this is a number", "text in quotes"]),
        ("do='len'\nbytes={ hex = '0g' }", &["hex", "not hex"]),
        ("do='len'\nbytes={ base64 = 'AA==' }", &["base64 = \"AA==\"", "{ hex = \"...\" }"]),
        ("do='len'\nbytes={ file = '/none/x' }", &["cannot read /none/x", "a local file"]),
        ("do='len'\nbytes='$ 5'", &["no operation is called ' 5'", "\"$$...\""]),
        ("do='create'\npath='p'\nperm=644", &["perm = 644", "0o644"]),
        ("do='create'\npath='p'\nperm='0999'", &["perm = \"0999\"", "octal"]),
        ("do='create'\npath='p'\nperm='70000'", &["operation 5 (create)", "beyond 07777"]),
        ("do='open'\npath='p'\nfollow='no'", &["follow = \"no\"", "true or false"]),
        ("do='open'\npath='p'\naccess='all'", &["access = \"all\"", "read, write, read_write, path"]),
        ("do='open'\npath='p'\nexport=true", &["operation 5 (open) has no value", "export = true"]),
        ("do='sync'\nname='5x'\nfile='$f'", &["name = \"5x\"", "not a name", "letters"]),
        ("do='sync'\nname='b'\nfile='$f'", &["name = \"b\"", "operation 3 has this name"]),
        ("do='expect'\nthat=['$n', '==']", &["that = [\"$n\", \"==\"]", "three parts"]),
        ("do='expect'\nthat=['$n', '=', 5]", &["three parts", "\">=\""]),
        ("do='expect'\nthat=['$f', '==', 5]", &["operation 1 'f' (open) gives a file", "numbers and bytes"]),
        ("do='expect'\nthat=['$n', '==', 'x']", &["operation 5 (expect) compares a number with bytes"]),
        ("do='expect'\nthat='$n'", &["that = \"$n\": this is a reference", "[left, operator, right]"]),
        ("do='sync'\nfile='$f'\nwhen=true", &["when = true", "[left, operator, right]"]),
        ("do='pack'\nnum=1\nwidth=9", &["operation 5 (pack)", "1 to 8 bytes"]),
        ("do='pack'\nnum=1\nwidth=300", &["width = 300", "between 0 and 255"]),
        ("do='concat'\nparts='$b'", &["parts = \"$b\"", "a list of bytes"]),
        ("do='get_xattr'\nfile='$f'\nxattr='trusted.x'", &["outside of the namespace user.", "user.comment"]),
        ("do='write'\nfile='$f'\nat='begin'\ndata=''", &["at = \"begin\"", "\"end\""]),
        ("do='close'\nfile='$f'\n[[op]]\ndo='sync'\nfile='$f'", &["which was closed", "move the close"]),
    ];
    for (keys, fragments) in table {
        let told = refused(keys);
        assert!(told.starts_with("p.toml:"), "{keys}: {told}");
        for fragment in *fragments {
            assert!(told.contains(fragment), "{keys}: '{fragment}' is not in: {told}");
        }
    }
    assert!(refused("do='move'").starts_with(own), "{}", refused("do='move'"));
}

#[test]
fn mistakes_of_the_program_itself_are_told() {
    let op = "[[op]]\ndo='len'\nbytes=''\n";
    let table = [
        ("".to_string(), "p.toml: the program has no operations"),
        ("op = []".to_string(), "no operations"),
        ("op = 5".to_string(), "p.toml:1: op = 5: this is a number"),
        ("op = [5]".to_string(), "op = 5: this is a number"),
        (
            format!("policy='some'\n{op}"),
            "policy = \"some\": there is no such value\ngive one of all, prefix, each",
        ),
        (format!("durable='yes'\n{op}"), "durable = \"yes\": this is text\ngive true or false"),
        (
            format!("polcy='all'\n{op}"),
            "p.toml:1: polcy: there is no such key in a program\nthe keys are policy, durable, op",
        ),
        (format!("{op}[[op]\n"), "p.toml:4: "),
        (op.repeat(65), "65 operations; 64 are allowed\nwrite several programs"),
        (op.repeat(300), "300 operations; 64 are allowed"),
        ("[[op]]\ndo='open'\npath='p'\n".repeat(17), "opens 17 files; 16 are allowed"),
        (
            format!("[[op]]\ndo='len'\nbytes='$x'\n{}", op.replace("do", "name='x'\ndo")),
            "operation 2 'x' does not come before",
        ),
    ];
    for (text, expected) in &table {
        let told = refusal(text);
        assert!(told.contains(expected), "'{expected}' is not in: {told}");
    }
}

#[test]
fn the_page_of_compound_operations_has_all_operations_with_their_keys() {
    const PAGE: &str = include_str!("../../../../../../docs/how-to/compound-operations.md");
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("## Operations"));
    let rows = rows.take_while(|line| !line.starts_with("## Limits")).filter(|line| line.starts_with("| `"));
    let mut named = Vec::new();
    for row in rows.skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_string).collect::<Vec<_>>();
        named.push((words(cells[1]).concat(), words(cells[2])));
    }
    let known: Vec<_> = KINDS
        .iter()
        .map(|form| (form.name.to_string(), form.keys.iter().map(|key| key.to_string()).collect::<Vec<_>>()))
        .collect();
    assert!(known.iter().all(|form| named.contains(form)), "{named:?}\n{known:?}");
    assert_eq!(named.len(), known.len());
}
