//! LMDB: a database a tree, integer keys, a writable map, no read-ahead, durable at the end. Keys of a batch are taken
//! in their order: neighbours then share pages.

use crate::{Result, TREES, Trees, get_sorted};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

type Handle = *mut c_void;

const INTEGERKEY: c_uint = 0x08;
const NOSYNC: c_uint = 0x10000;
const APPEND: c_uint = 0x20000;
const RDONLY: c_uint = 0x20000;
const CREATE: c_uint = 0x40000;
const WRITEMAP: c_uint = 0x80000;
const NORDAHEAD: c_uint = 0x80_0000;
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
    fn mdb_env_set_maxdbs(env: Handle, dbs: c_uint) -> c_int;
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
    fn mdb_strerror(code: c_int) -> *const c_char;
}

pub struct Lmdb {
    env: Handle,
    dbis: Vec<c_uint>,
}

fn check(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the library gives a string of its own that ends with 0.
    Err(unsafe { CStr::from_ptr(mdb_strerror(code)) }.to_string_lossy().into_owned().into())
}

fn val<T>(number: &T) -> Val {
    Val { len: size_of::<T>(), data: std::ptr::from_ref(number).cast() }
}

pub fn fill<I: Iterator<Item = (u32, u64)>>(dir: &Path, pairs: impl Fn() -> I) -> Result<()> {
    let lmdb = Lmdb::open(dir)?;
    for dbi in &lmdb.dbis {
        let txn = lmdb.begin(0)?;
        for (key, value) in pairs() {
            // SAFETY: the library copies what it is given.
            check(unsafe { mdb_put(txn, *dbi, &mut val(&key), &mut val(&value), APPEND) })?;
        }
        // SAFETY: the transaction is open and is not used again.
        check(unsafe { mdb_txn_commit(txn) })?;
    }
    let mut lmdb = Box::new(lmdb);
    lmdb.sync()?;
    lmdb.close()
}

impl Lmdb {
    pub fn open(dir: &Path) -> Result<Lmdb> {
        let path = CString::new(dir.as_os_str().as_bytes())?;
        let (mut env, mut txn, mut dbis) = (std::ptr::null_mut(), std::ptr::null_mut(), Vec::new());
        // SAFETY: handles are those that the library has made; out-pointers are to live locals.
        unsafe {
            check(mdb_env_create(&mut env))?;
            check(mdb_env_set_mapsize(env, MAP_BYTES))?;
            check(mdb_env_set_maxdbs(env, TREES as c_uint))?;
            check(mdb_env_open(env, path.as_ptr(), NORDAHEAD | NOSYNC | WRITEMAP, 0o644))?;
            check(mdb_txn_begin(env, std::ptr::null_mut(), 0, &mut txn))?;
            for at in 0..TREES {
                let (name, mut dbi) = (CString::new(format!("tree {at}"))?, 0);
                check(mdb_dbi_open(txn, name.as_ptr(), INTEGERKEY | CREATE, &mut dbi))?;
                dbis.push(dbi);
            }
            check(mdb_txn_commit(txn))?;
        }
        Ok(Lmdb { env, dbis })
    }

    fn begin(&self, flags: c_uint) -> Result<Handle> {
        let mut txn = std::ptr::null_mut();
        // SAFETY: as in `open`.
        check(unsafe { mdb_txn_begin(self.env, std::ptr::null_mut(), flags, &mut txn) })?;
        Ok(txn)
    }
}

impl Trees for Lmdb {
    fn get(&mut self, tree: usize, keys: &[u32], each: &mut dyn FnMut(Option<u64>)) -> Result<()> {
        let txn = self.begin(RDONLY)?;
        let get = |key: u32| {
            let mut found = val(&0u64);
            // SAFETY: what is found has 8 bytes and stays in the map until the transaction ends.
            unsafe {
                match mdb_get(txn, self.dbis[tree], &mut val(&key), &mut found) {
                    NOTFOUND => Ok(None),
                    code => check(code).map(|()| Some(found.data.cast::<u64>().read_unaligned())),
                }
            }
        };
        get_sorted(keys, get, each)?;
        // SAFETY: the transaction is open and is not used again.
        unsafe { mdb_txn_abort(txn) };
        Ok(())
    }

    fn insert(&mut self, tree: usize, pairs: &[(u32, u64)]) -> Result<()> {
        let mut sorted = pairs.to_vec();
        sorted.sort_unstable();
        let txn = self.begin(0)?;
        for (key, value) in &sorted {
            // SAFETY: the library copies what it is given.
            check(unsafe { mdb_put(txn, self.dbis[tree], &mut val(key), &mut val(value), 0) })?;
        }
        // SAFETY: the transaction is open and is not used again.
        check(unsafe { mdb_txn_commit(txn) })
    }

    fn delete(&mut self, tree: usize, keys: &[u32]) -> Result<u64> {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        let (txn, mut found) = (self.begin(0)?, 0);
        for key in &sorted {
            // SAFETY: as in `insert`.
            match unsafe { mdb_del(txn, self.dbis[tree], &mut val(key), std::ptr::null_mut()) } {
                NOTFOUND => {}
                code => {
                    check(code)?;
                    found += 1;
                }
            }
        }
        // SAFETY: the transaction is open and is not used again.
        check(unsafe { mdb_txn_commit(txn) })?;
        Ok(found)
    }

    fn sync(&mut self) -> Result<()> {
        // SAFETY: as in `open`.
        check(unsafe { mdb_env_sync(self.env, 1) })
    }

    fn close(self: Box<Self>) -> Result<()> {
        // SAFETY: the handle is not used again.
        unsafe { mdb_env_close(self.env) };
        Ok(())
    }
}
