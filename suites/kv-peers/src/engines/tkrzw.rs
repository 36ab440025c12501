//! tkrzw's HashDBM: twice as many buckets as pairs, updated in place, in a memory-mapped file. A batch is not atomic there.

use crate::engine::{Config, Durability, Engine, Result};
use crate::workload::{Key, Pair};
use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;

type Handle = *mut c_void;

#[link(name = "tkrzw")]
unsafe extern "C" {
    fn tkrzw_dbm_open(path: *const c_char, writable: bool, params: *const c_char) -> Handle;
    fn tkrzw_dbm_close(dbm: Handle) -> bool;
    fn tkrzw_dbm_set(
        dbm: Handle,
        key: *const u8,
        key_len: i32,
        value: *const u8,
        len: i32,
        overwrite: bool,
    ) -> bool;
    fn tkrzw_dbm_get(dbm: Handle, key: *const u8, key_len: i32, len: *mut i32) -> *mut u8;
    fn tkrzw_dbm_remove(dbm: Handle, key: *const u8, key_len: i32) -> bool;
    fn tkrzw_dbm_synchronize(
        dbm: Handle,
        hard: bool,
        proc: Handle,
        arg: *mut c_void,
        params: *const c_char,
    ) -> bool;
}

pub struct Tkrzw {
    dbm: Handle,
    durability: Durability,
}

fn check(done: bool, what: &str) -> Result<()> {
    if done { Ok(()) } else { Err(format!("tkrzw: {what} failed").into()) }
}

impl Tkrzw {
    pub fn open(config: &Config<'_>) -> Result<Tkrzw> {
        let path = CString::new(config.dir.join("pairs.tkh").as_os_str().as_bytes())?;
        let params = format!("dbm=HashDBM,num_buckets={},offset_width=5,align_pow=3", config.pairs * 2);
        let params = CString::new(params)?;
        // SAFETY: both strings end with 0 and are copied.
        let dbm = unsafe { tkrzw_dbm_open(path.as_ptr(), true, params.as_ptr()) };
        check(!dbm.is_null(), "open")?;
        Ok(Tkrzw { dbm, durability: config.durability })
    }

    fn end_of_batch(&mut self) -> Result<()> {
        if self.durability == Durability::Batch { self.sync() } else { Ok(()) }
    }
}

impl Engine for Tkrzw {
    fn put(&mut self, batch: &[Pair]) -> Result<()> {
        for (key, value) in batch {
            // SAFETY: the library copies what it is given.
            let done = unsafe {
                tkrzw_dbm_set(
                    self.dbm,
                    key.as_ptr(),
                    key.len() as i32,
                    value.as_ptr(),
                    value.len() as i32,
                    true,
                )
            };
            check(done, "set")?;
        }
        self.end_of_batch()
    }

    fn get(&mut self, keys: &[Key], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            let mut len = 0;
            // SAFETY: the value is ours until it is freed, and has `len` bytes.
            unsafe {
                let value = tkrzw_dbm_get(self.dbm, key.as_ptr(), key.len() as i32, &mut len);
                each(at, (!value.is_null()).then(|| std::slice::from_raw_parts(value, len as usize)));
                libc::free(value.cast());
            }
        }
        Ok(())
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        for key in keys {
            // SAFETY: as in `put`.
            unsafe { tkrzw_dbm_remove(self.dbm, key.as_ptr(), key.len() as i32) };
        }
        self.end_of_batch()
    }

    fn sync(&mut self) -> Result<()> {
        // SAFETY: no procedure is given; the parameters end with 0.
        let done = unsafe {
            tkrzw_dbm_synchronize(self.dbm, true, std::ptr::null_mut(), std::ptr::null_mut(), c"".as_ptr())
        };
        check(done, "synchronize")
    }

    fn close(self: Box<Self>) -> Result<()> {
        // SAFETY: the handle is not used again.
        check(unsafe { tkrzw_dbm_close(self.dbm) }, "close")
    }
}
