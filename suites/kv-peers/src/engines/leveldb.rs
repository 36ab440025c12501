//! LevelDB by its C interface: a bloom filter of 10 bits a key, no compression, a write buffer of 64 MiB.

use crate::engine::{Config, Durability, Engine, Result};
use crate::workload::{Key, Pair};
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;

type Handle = *mut c_void;

#[link(name = "leveldb")]
unsafe extern "C" {
    fn leveldb_options_create() -> Handle;
    fn leveldb_options_set_create_if_missing(options: Handle, on: c_uchar);
    fn leveldb_options_set_write_buffer_size(options: Handle, bytes: usize);
    fn leveldb_options_set_compression(options: Handle, kind: c_int);
    fn leveldb_options_set_cache(options: Handle, cache: Handle);
    fn leveldb_options_set_filter_policy(options: Handle, policy: Handle);
    fn leveldb_options_set_max_open_files(options: Handle, files: c_int);
    fn leveldb_cache_create_lru(bytes: usize) -> Handle;
    fn leveldb_filterpolicy_create_bloom(bits: c_int) -> Handle;
    fn leveldb_open(options: Handle, name: *const c_char, error: *mut *mut c_char) -> Handle;
    fn leveldb_close(db: Handle);
    fn leveldb_writeoptions_create() -> Handle;
    fn leveldb_writeoptions_set_sync(options: Handle, on: c_uchar);
    fn leveldb_readoptions_create() -> Handle;
    fn leveldb_writebatch_create() -> Handle;
    fn leveldb_writebatch_clear(batch: Handle);
    fn leveldb_writebatch_put(
        batch: Handle,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    );
    fn leveldb_writebatch_delete(batch: Handle, key: *const u8, key_len: usize);
    fn leveldb_write(db: Handle, options: Handle, batch: Handle, error: *mut *mut c_char);
    fn leveldb_get(
        db: Handle,
        options: Handle,
        key: *const u8,
        key_len: usize,
        value_len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut u8;
    fn leveldb_free(memory: *mut c_void);
}

pub struct LevelDb {
    db: Handle,
    write: Handle,
    sync: Handle,
    read: Handle,
    batch: Handle,
}

fn check(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the library gives a string that ends with 0.
    Err(unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned().into())
}

impl LevelDb {
    pub fn open(config: &Config<'_>) -> Result<LevelDb> {
        let path = CString::new(config.dir.join("db").as_os_str().as_bytes())?;
        let mut error = std::ptr::null_mut();
        // SAFETY: handles are those that the library has made, and live as long as the process.
        unsafe {
            let options = leveldb_options_create();
            leveldb_options_set_create_if_missing(options, 1);
            leveldb_options_set_compression(options, 0);
            leveldb_options_set_write_buffer_size(options, 64 << 20);
            leveldb_options_set_max_open_files(options, 10_000);
            leveldb_options_set_cache(options, leveldb_cache_create_lru(config.cache as usize));
            leveldb_options_set_filter_policy(options, leveldb_filterpolicy_create_bloom(10));
            let db = leveldb_open(options, path.as_ptr(), &mut error);
            check(error)?;
            let (write, sync) = (leveldb_writeoptions_create(), leveldb_writeoptions_create());
            leveldb_writeoptions_set_sync(write, u8::from(config.durability == Durability::Batch));
            leveldb_writeoptions_set_sync(sync, 1);
            Ok(LevelDb {
                db,
                write,
                sync,
                read: leveldb_readoptions_create(),
                batch: leveldb_writebatch_create(),
            })
        }
    }

    fn write(&mut self, options: Handle) -> Result<()> {
        let mut error = std::ptr::null_mut();
        // SAFETY: as in `open`.
        unsafe {
            leveldb_write(self.db, options, self.batch, &mut error);
            leveldb_writebatch_clear(self.batch);
        }
        check(error)
    }
}

impl Engine for LevelDb {
    fn put(&mut self, batch: &[Pair]) -> Result<()> {
        for (key, value) in batch {
            // SAFETY: the library copies what it is given.
            unsafe {
                leveldb_writebatch_put(self.batch, key.as_ptr(), key.len(), value.as_ptr(), value.len())
            };
        }
        self.write(self.write)
    }

    fn get(&mut self, keys: &[Key], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            let (mut len, mut error) = (0, std::ptr::null_mut());
            // SAFETY: the value is the library's until it is freed, and has `len` bytes.
            unsafe {
                let value = leveldb_get(self.db, self.read, key.as_ptr(), key.len(), &mut len, &mut error);
                check(error)?;
                each(at, (!value.is_null()).then(|| std::slice::from_raw_parts(value, len)));
                leveldb_free(value.cast());
            }
        }
        Ok(())
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        for key in keys {
            // SAFETY: as in `put`.
            unsafe { leveldb_writebatch_delete(self.batch, key.as_ptr(), key.len()) };
        }
        self.write(self.write)
    }

    fn sync(&mut self) -> Result<()> {
        // An empty batch with sync makes the log durable.
        self.write(self.sync)
    }

    fn close(self: Box<Self>) -> Result<()> {
        // SAFETY: the handle is not used again.
        unsafe { leveldb_close(self.db) };
        Ok(())
    }
}
