//! The shipped policies against the files that their programs really make. The names were recorded from RocksDB 7.8.3,
//! LevelDB 1.23, SQLite 3.40 and WiredTiger 3.2.1; those of MongoDB and CacheLib are from their documentation.

// The lint spares test functions but not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;
use weft_core::DataClass;
use weft_placement::{Engine, FileContext, Mode, OpenIntent, Policy, WriteHint};

/// Where an engine that chooses by program sends a file.
fn stream(engine: &Engine, process: &str, thread: &str, path: &str) -> String {
    let ctx = FileContext { process, thread, ..FileContext::new(path.as_bytes()) };
    engine.stream_name(engine.place(&ctx).stream).unwrap().to_string()
}

fn check(process: &str, cases: &[(&str, &str, &str)]) {
    let engine = Engine::new(Mode::Rules, None, 0).unwrap();
    for (thread, path, expected) in cases {
        assert_eq!(stream(&engine, process, thread, path), *expected, "{process}/{thread} {path}");
    }
}

#[test]
fn rocksdb_files_go_to_log_flush_compaction_and_metadata() {
    check(
        "db_bench",
        &[
            ("db_bench", "/db/000004.log", "rocksdb.wal"),
            ("db_bench", "/db/archive/000123.log", "rocksdb.wal"),
            ("rocksdb:high", "/db/000009.sst", "rocksdb.flush"),
            ("rocksdb:high0", "/db/1234567.sst", "rocksdb.flush"),
            ("rocksdb:low", "/db/000014.sst", "rocksdb.compaction"),
            ("rocksdb:bottom", "/db/000015.sst", "rocksdb.compaction"),
            ("db_bench", "/db/000016.sst", "rocksdb.compaction"),
            ("rocksdb:low", "/db/000017.blob", "rocksdb.blob"),
            ("db_bench", "/db/MANIFEST-000005", "rocksdb.meta"),
            ("db_bench", "/db/000001.dbtmp", "rocksdb.meta"),
            ("db_bench", "/db/CURRENT", "rocksdb.meta"),
            ("db_bench", "/db/IDENTITY", "rocksdb.meta"),
            ("db_bench", "/db/OPTIONS-000006.dbtmp", "rocksdb.meta"),
            ("db_bench", "/db/OPTIONS-000007", "rocksdb.meta"),
            ("db_bench", "/db/LOG", "rocksdb.meta"),
            ("db_bench", "/db/LOG.old.1795171814667134", "rocksdb.meta"),
            ("db_bench", "/db/LOCK", "rocksdb.meta"),
            ("db_bench", "/logs/weft_db_LOG", "rocksdb.meta"),
        ],
    );
}

#[test]
fn leveldb_files_go_to_log_table_and_metadata() {
    check(
        "leveldb_bench",
        &[
            ("leveldb_bench", "/db/000003.log", "leveldb.wal"),
            ("leveldb_bench", "/db/000005.ldb", "leveldb.table"),
            ("leveldb_bench", "/db/MANIFEST-000002", "leveldb.meta"),
            ("leveldb_bench", "/db/000001.dbtmp", "leveldb.meta"),
            ("leveldb_bench", "/db/CURRENT", "leveldb.meta"),
            ("leveldb_bench", "/db/LOG", "leveldb.meta"),
            ("leveldb_bench", "/db/LOG.old", "leveldb.meta"),
            ("leveldb_bench", "/db/LOCK", "leveldb.meta"),
        ],
    );
}

#[test]
fn sqlite_files_go_to_database_journal_log_and_temporary() {
    check(
        "sqlite3",
        &[
            ("sqlite3", "/a.db", "sqlite.database"),
            ("sqlite3", "/a.db-journal", "sqlite.journal"),
            ("sqlite3", "/a.db-wal", "sqlite.wal"),
            ("sqlite3", "/a.db-shm", "sqlite.wal"),
            ("sqlite3", "/a.db-mj0123ABCD", "sqlite.journal"),
            ("sqlite3", "/etilqs_8a7b6c5d4e3f2a1b", "sqlite.temp"),
            ("sqlite3", "/inventory", "sqlite.database"),
        ],
    );
}

#[test]
fn wiredtiger_files_go_to_journal_btree_chunks_history_and_metadata() {
    check(
        "mongod",
        &[
            ("mongod", "/journal/WiredTigerLog.0000000001", "wiredtiger.journal"),
            ("mongod", "/journal/WiredTigerTmplog.0000000002", "wiredtiger.journal"),
            ("mongod", "/journal/WiredTigerPreplog.0000000001", "wiredtiger.journal"),
            ("mongod", "/collection-0-8589934592.wt", "wiredtiger.btree"),
            ("mongod", "/index-1--123456.wt", "wiredtiger.btree"),
            ("mongod", "/table-000001.lsm", "wiredtiger.chunk"),
            ("mongod", "/table-000001.bf", "wiredtiger.chunk"),
            ("mongod", "/WiredTigerHS.wt", "wiredtiger.history"),
            ("mongod", "/WiredTigerLAS.wt", "wiredtiger.history"),
            ("mongod", "/WiredTiger", "wiredtiger.meta"),
            ("mongod", "/WiredTiger.wt", "wiredtiger.meta"),
            ("mongod", "/WiredTiger.turtle", "wiredtiger.meta"),
            ("mongod", "/WiredTiger.turtle.set", "wiredtiger.meta"),
            ("mongod", "/WiredTiger.lock", "wiredtiger.meta"),
            ("mongod", "/sizeStorer.wt", "wiredtiger.meta"),
            ("mongod", "/_mdb_catalog.wt", "wiredtiger.meta"),
        ],
    );
}

#[test]
fn cachelib_files_go_to_the_cache_and_its_state() {
    check(
        "cachebench",
        &[
            ("cachebench", "/navy_cache", "cachelib.large-objects"),
            ("cachebench", "/navy_cache_0", "cachelib.large-objects"),
            ("cachebench", "/bighash_0", "cachelib.small-objects"),
            ("cachebench", "/state/NvmCacheState", "cachelib.state"),
            ("cachebench", "/state/metadata", "cachelib.state"),
        ],
    );
}

#[test]
fn an_unknown_program_is_placed_by_the_kind_of_its_names() {
    check(
        "frobnicate",
        &[
            ("t", "/data/a.parquet", "generic.data:parquet"),
            ("t", "/data/b.parquet", "generic.data:parquet"),
            ("t", "/data/a.index", "generic.data:index"),
            ("t", "/data/README", "generic.data:(none)"),
            ("t", "/data/server.log", "generic.log"),
            ("t", "/base/pg_wal/000000010000000000000001", "generic.log"),
            ("t", "/tmp/scratch", "generic.temporary"),
            ("t", "/data/.a.txt.swp", "generic.temporary"),
            ("t", "/disk.qcow2", "generic.in-place"),
        ],
    );
    let engine = Engine::new(Mode::Rules, None, 0).unwrap();
    let unnamed =
        FileContext { flags: OpenIntent::TMPFILE | OpenIntent::WRITE, ..FileContext::new(b"/data") };
    assert_eq!(engine.place(&unnamed).class, DataClass::Temporary);
}

#[test]
fn a_program_that_is_not_known_is_recognised_by_the_files_it_makes() {
    let engine = Engine::new(Mode::Rules, None, 0).unwrap();
    assert_eq!(stream(&engine, "mysqld", "mysqld", "/rocks/000001.log"), "generic.log");
    assert_eq!(stream(&engine, "mysqld", "mysqld", "/rocks/IDENTITY"), "rocksdb.meta");
    assert_eq!(stream(&engine, "mysqld", "mysqld", "/rocks/000002.log"), "rocksdb.wal");
    // Another directory of the same program is not touched by that.
    assert_eq!(stream(&engine, "mysqld", "mysqld", "/mysql/ibdata.ibd"), "generic.in-place");
}

#[test]
fn files_that_were_there_before_tell_the_program_too() {
    let engine = Engine::new(Mode::Rules, None, 0).unwrap();
    engine.learn_name(b"/db/000123.ldb");
    assert_eq!(stream(&engine, "cp", "cp", "/db/000200.log"), "leveldb.wal");
}

#[test]
fn programs_of_different_kinds_share_a_volume_and_no_stream() {
    let engine = Engine::new(Mode::Rules, None, 0).unwrap();
    let files = [
        ("db_bench", "/a/000004.log"),
        ("sqlite3", "/b.db-wal"),
        ("mongod", "/c/WiredTigerLog.0000000001"),
        ("leveldb_bench", "/d/000003.log"),
        ("cachebench", "/e/navy_cache"),
        ("cp", "/f/a.txt"),
    ];
    let ids: HashSet<u16> = files
        .iter()
        .map(|(process, path)| {
            engine
                .place(&FileContext { process, thread: process, ..FileContext::new(path.as_bytes()) })
                .stream
                .0
        })
        .collect();
    assert_eq!(ids.len(), files.len());
    assert!(!ids.contains(&0), "0 is the file core's own");
    let infos = engine.streams();
    assert_eq!(infos.len(), files.len());
    assert!(infos.iter().all(|s| s.files == 1), "{infos:?}");
}

#[test]
fn concurrent_compactions_get_groups_of_their_own_and_one_compaction_keeps_to_one() {
    let engine = Engine::new(Mode::Rules, None, 0).unwrap();
    let group = |thread_id, path: &str| {
        let ctx = FileContext {
            process: "db_bench",
            thread: "rocksdb:low",
            thread_id,
            ..FileContext::new(path.as_bytes())
        };
        engine.place(&ctx).group
    };
    let (first, second) = (group(11, "/db/000010.sst"), group(12, "/db/000011.sst"));
    assert_ne!(first, second);
    assert_eq!(group(11, "/db/000012.sst"), first);
    assert_eq!(group(12, "/db/000013.sst"), second);
}

#[test]
fn every_shipped_policy_is_read_described_and_found_by_its_program() {
    let shipped = Policy::shipped().unwrap();
    let names: Vec<&str> = shipped.iter().map(Policy::name).collect();
    assert_eq!(names, ["rocksdb", "leveldb", "sqlite", "wiredtiger", "cachelib", "generic"]);
    for policy in &shipped {
        let text = policy.to_string();
        assert!(policy.streams().iter().all(|s| text.contains(&s.name)), "{text}");
        assert!(Policy::shipped_by_name(policy.name()).unwrap().is_ok());
    }
    for (process, policy) in [
        ("db_bench", "rocksdb"),
        ("sqlite3", "sqlite"),
        ("mongod", "wiredtiger"),
        ("leveldb_bench", "leveldb"),
        ("cachebench", "cachelib"),
        ("bash", "generic"),
    ] {
        assert_eq!(Policy::for_program(process).unwrap().name(), policy);
    }
    assert!(Policy::shipped_by_name("none").is_none());
}

#[test]
fn a_hint_is_read_from_the_number_of_the_system_call() {
    assert_eq!(WriteHint::from_fcntl(2), Some(WriteHint::Short));
    assert_eq!(WriteHint::from_fcntl(5), Some(WriteHint::Extreme));
    assert_eq!(WriteHint::from_fcntl(6), None);
}
