//! LMDB, without read-ahead; as `lmdb-map` with its writable map.
//!
//! Pairs of a batch are put in the order of their keys: neighbours then share the pages that a commit copies.

use crate::engine::{Config, Durability, Engine, Result};
use crate::workload::{Key, Pair};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;

type Handle = *mut c_void;

const NOSYNC: c_uint = 0x10000;
const RDONLY: c_uint = 0x20000;
const WRITEMAP: c_uint = 0x80000;
const NORDAHEAD: c_uint = 0x80_0000;
const NEXT: c_uint = 8;
const NOTFOUND: c_int = -30798;
const MAP_BYTES: usize = 24 << 30;

#[repr(C)]
struct Val {
    len: usize,
    data: *const u8,
}

#[link(name = "lmdb")]
unsafe extern "C" {
    fn mdb_env_create(env: *mut Handle) -> c_int;
    fn mdb_env_set_mapsize(env: Handle, bytes: usize) -> c_int;
    fn mdb_env_open(env: Handle, path: *const c_char, flags: c_uint, mode: libc::mode_t) -> c_int;
    fn mdb_env_sync(env: Handle, force: c_int) -> c_int;
    fn mdb_env_close(env: Handle);
    fn mdb_txn_begin(env: Handle, parent: Handle, flags: c_uint, txn: *mut Handle) -> c_int;
    fn mdb_txn_commit(txn: Handle) -> c_int;
    fn mdb_txn_abort(txn: Handle);
    fn mdb_dbi_open(txn: Handle, name: *const c_char, flags: c_uint, dbi: *mut c_uint) -> c_int;
    fn mdb_put(txn: Handle, dbi: c_uint, key: *mut Val, data: *mut Val, flags: c_uint) -> c_int;
    fn mdb_get(txn: Handle, dbi: c_uint, key: *mut Val, data: *mut Val) -> c_int;
    fn mdb_del(txn: Handle, dbi: c_uint, key: *mut Val, data: *mut Val) -> c_int;
    fn mdb_txn_reset(txn: Handle);
    fn mdb_txn_renew(txn: Handle) -> c_int;
    fn mdb_cursor_open(txn: Handle, dbi: c_uint, cursor: *mut Handle) -> c_int;
    fn mdb_cursor_get(cursor: Handle, key: *mut Val, data: *mut Val, op: c_uint) -> c_int;
    fn mdb_cursor_close(cursor: Handle);
    fn mdb_strerror(code: c_int) -> *const c_char;
}

pub struct Lmdb {
    env: Handle,
    dbi: c_uint,
    /// Read transaction of single gets, renewed for each: the library's advice.
    reader: Option<Handle>,
}

fn check(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the library gives a string of its own that ends with 0.
    Err(unsafe { CStr::from_ptr(mdb_strerror(code)) }.to_string_lossy().into_owned().into())
}

fn val(bytes: &[u8]) -> Val {
    Val { len: bytes.len(), data: bytes.as_ptr() }
}

impl Lmdb {
    pub fn open(config: &Config<'_>, map: bool) -> Result<Lmdb> {
        let path = CString::new(config.dir.as_os_str().as_bytes())?;
        let (mut env, mut txn, mut dbi) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        let lazy = if config.durability == Durability::End { NOSYNC } else { 0 };
        let mapped = if map { WRITEMAP } else { 0 };
        // SAFETY: handles are those that the library has made; out-pointers are to live locals.
        unsafe {
            check(mdb_env_create(&mut env))?;
            check(mdb_env_set_mapsize(env, MAP_BYTES))?;
            check(mdb_env_open(env, path.as_ptr(), NORDAHEAD | lazy | mapped, 0o644))?;
            check(mdb_txn_begin(env, std::ptr::null_mut(), 0, &mut txn))?;
            check(mdb_dbi_open(txn, std::ptr::null(), 0, &mut dbi))?;
            check(mdb_txn_commit(txn))?;
        }
        Ok(Lmdb { env, dbi, reader: None })
    }

    fn begin(&self, flags: c_uint) -> Result<Handle> {
        let mut txn = std::ptr::null_mut();
        // SAFETY: as in `open`.
        check(unsafe { mdb_txn_begin(self.env, std::ptr::null_mut(), flags, &mut txn) })?;
        Ok(txn)
    }
}

impl Engine for Lmdb {
    fn put(&mut self, batch: &[Pair]) -> Result<()> {
        let mut sorted: Vec<_> = batch.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        let txn = self.begin(0)?;
        for (key, value) in sorted {
            // SAFETY: the library copies what it is given.
            check(unsafe { mdb_put(txn, self.dbi, &mut val(key), &mut val(value), 0) })?;
        }
        // SAFETY: the transaction is open and is not used again.
        check(unsafe { mdb_txn_commit(txn) })
    }

    fn get(&mut self, keys: &[Key], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let txn = self.begin(RDONLY)?;
        for (at, key) in keys.iter().enumerate() {
            let mut found = val(&[]);
            // SAFETY: what is found stays in the map until the transaction ends.
            unsafe {
                match mdb_get(txn, self.dbi, &mut val(key), &mut found) {
                    NOTFOUND => each(at, None),
                    code => {
                        check(code)?;
                        each(at, Some(std::slice::from_raw_parts(found.data, found.len)));
                    }
                }
            }
        }
        // SAFETY: the transaction is open and is not used again.
        unsafe { mdb_txn_abort(txn) };
        Ok(())
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        let mut sorted: Vec<_> = keys.iter().collect();
        sorted.sort_unstable();
        let txn = self.begin(0)?;
        for key in sorted {
            // SAFETY: as in `put`.
            match unsafe { mdb_del(txn, self.dbi, &mut val(key), std::ptr::null_mut()) } {
                NOTFOUND => {}
                code => check(code)?,
            }
        }
        // SAFETY: the transaction is open and is not used again.
        check(unsafe { mdb_txn_commit(txn) })
    }

    fn sync(&mut self) -> Result<()> {
        // SAFETY: as in `open`.
        check(unsafe { mdb_env_sync(self.env, 1) })
    }

    fn close(self: Box<Self>) -> Result<()> {
        // SAFETY: the handles are not used again.
        unsafe {
            if let Some(reader) = self.reader {
                mdb_txn_abort(reader);
            }
            mdb_env_close(self.env);
        }
        Ok(())
    }

    fn put_one(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let txn = self.begin(0)?;
        // SAFETY: the library copies what it is given; the transaction is not used again.
        unsafe {
            check(mdb_put(txn, self.dbi, &mut val(key), &mut val(value), 0))?;
            check(mdb_txn_commit(txn))
        }
    }

    fn get_one(&mut self, key: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let reader = match self.reader {
            Some(reader) => {
                // SAFETY: it was reset by the get before.
                check(unsafe { mdb_txn_renew(reader) })?;
                reader
            }
            None => *self.reader.insert(self.begin(RDONLY)?),
        };
        let mut found = val(&[]);
        // SAFETY: what is found stays in the map until the transaction is reset.
        unsafe {
            let is_there = match mdb_get(reader, self.dbi, &mut val(key), &mut found) {
                NOTFOUND => false,
                code => {
                    check(code)?;
                    each(std::slice::from_raw_parts(found.data, found.len));
                    true
                }
            };
            mdb_txn_reset(reader);
            Ok(is_there)
        }
    }

    fn scan(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let txn = self.begin(RDONLY)?;
        let (mut cursor, mut key, mut found) = (std::ptr::null_mut(), val(&[]), val(&[]));
        // SAFETY: what is found stays in the map until the transaction ends; the handles are not used after.
        unsafe {
            check(mdb_cursor_open(txn, self.dbi, &mut cursor))?;
            while mdb_cursor_get(cursor, &mut key, &mut found, NEXT) == 0 {
                each(
                    std::slice::from_raw_parts(key.data, key.len),
                    std::slice::from_raw_parts(found.data, found.len),
                );
            }
            mdb_cursor_close(cursor);
            mdb_txn_abort(txn);
        }
        Ok(())
    }
}
