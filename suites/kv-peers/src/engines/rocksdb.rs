//! RocksDB by its C interface: a bloom filter of 10 bits a key and a hash index in blocks, no compression, four write
//! buffers of 128 MiB, two background jobs.

use crate::engine::{Config, Durability, Engine, Result};
use crate::workload::{Key, Pair};
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;

type Handle = *mut c_void;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> Handle;
    fn rocksdb_options_set_create_if_missing(options: Handle, on: c_uchar);
    fn rocksdb_options_set_write_buffer_size(options: Handle, bytes: usize);
    fn rocksdb_options_set_compression(options: Handle, kind: c_int);
    fn rocksdb_options_set_max_write_buffer_number(options: Handle, buffers: c_int);
    fn rocksdb_options_increase_parallelism(options: Handle, threads: c_int);
    fn rocksdb_options_set_max_background_jobs(options: Handle, jobs: c_int);
    fn rocksdb_options_set_block_based_table_factory(options: Handle, table: Handle);
    fn rocksdb_block_based_options_create() -> Handle;
    fn rocksdb_block_based_options_set_block_cache(table: Handle, cache: Handle);
    fn rocksdb_block_based_options_set_filter_policy(table: Handle, policy: Handle);
    fn rocksdb_block_based_options_set_data_block_index_type(table: Handle, kind: c_int);
    fn rocksdb_options_set_max_open_files(options: Handle, files: c_int);
    fn rocksdb_cache_create_lru(bytes: usize) -> Handle;
    fn rocksdb_filterpolicy_create_bloom(bits: f64) -> Handle;
    fn rocksdb_open(options: Handle, name: *const c_char, error: *mut *mut c_char) -> Handle;
    fn rocksdb_close(db: Handle);
    fn rocksdb_writeoptions_create() -> Handle;
    fn rocksdb_writeoptions_set_sync(options: Handle, on: c_uchar);
    fn rocksdb_readoptions_create() -> Handle;
    fn rocksdb_writebatch_create() -> Handle;
    fn rocksdb_writebatch_clear(batch: Handle);
    fn rocksdb_writebatch_put(
        batch: Handle,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    );
    fn rocksdb_writebatch_delete(batch: Handle, key: *const u8, key_len: usize);
    fn rocksdb_write(db: Handle, options: Handle, batch: Handle, error: *mut *mut c_char);
    fn rocksdb_get(
        db: Handle,
        options: Handle,
        key: *const u8,
        key_len: usize,
        value_len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut u8;
    fn rocksdb_free(memory: *mut c_void);
}

pub struct RocksDb {
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

impl RocksDb {
    pub fn open(config: &Config<'_>) -> Result<RocksDb> {
        let path = CString::new(config.dir.join("db").as_os_str().as_bytes())?;
        let mut error = std::ptr::null_mut();
        // SAFETY: handles are those that the library has made, and live as long as the process.
        unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_compression(options, 0);
            rocksdb_options_set_write_buffer_size(options, 128 << 20);
            rocksdb_options_set_max_write_buffer_number(options, 4);
            rocksdb_options_increase_parallelism(options, 2);
            rocksdb_options_set_max_background_jobs(options, 2);
            rocksdb_options_set_max_open_files(options, -1);
            let table = rocksdb_block_based_options_create();
            rocksdb_block_based_options_set_block_cache(
                table,
                rocksdb_cache_create_lru(config.cache as usize),
            );
            rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom(10.0));
            rocksdb_block_based_options_set_data_block_index_type(table, 1);
            rocksdb_options_set_block_based_table_factory(options, table);
            let db = rocksdb_open(options, path.as_ptr(), &mut error);
            check(error)?;
            let (write, sync) = (rocksdb_writeoptions_create(), rocksdb_writeoptions_create());
            rocksdb_writeoptions_set_sync(write, u8::from(config.durability == Durability::Batch));
            rocksdb_writeoptions_set_sync(sync, 1);
            Ok(RocksDb {
                db,
                write,
                sync,
                read: rocksdb_readoptions_create(),
                batch: rocksdb_writebatch_create(),
            })
        }
    }

    fn write(&mut self, options: Handle) -> Result<()> {
        let mut error = std::ptr::null_mut();
        // SAFETY: as in `open`.
        unsafe {
            rocksdb_write(self.db, options, self.batch, &mut error);
            rocksdb_writebatch_clear(self.batch);
        }
        check(error)
    }
}

impl Engine for RocksDb {
    fn put(&mut self, batch: &[Pair]) -> Result<()> {
        for (key, value) in batch {
            // SAFETY: the library copies what it is given.
            unsafe {
                rocksdb_writebatch_put(self.batch, key.as_ptr(), key.len(), value.as_ptr(), value.len())
            };
        }
        self.write(self.write)
    }

    fn get(&mut self, keys: &[Key], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            let (mut len, mut error) = (0, std::ptr::null_mut());
            // SAFETY: the value is the library's until it is freed, and has `len` bytes.
            unsafe {
                let value = rocksdb_get(self.db, self.read, key.as_ptr(), key.len(), &mut len, &mut error);
                check(error)?;
                each(at, (!value.is_null()).then(|| std::slice::from_raw_parts(value, len)));
                rocksdb_free(value.cast());
            }
        }
        Ok(())
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        for key in keys {
            // SAFETY: as in `put`.
            unsafe { rocksdb_writebatch_delete(self.batch, key.as_ptr(), key.len()) };
        }
        self.write(self.write)
    }

    fn sync(&mut self) -> Result<()> {
        // An empty batch with sync makes the log durable.
        self.write(self.sync)
    }

    fn close(self: Box<Self>) -> Result<()> {
        // SAFETY: the handle is not used again.
        unsafe { rocksdb_close(self.db) };
        Ok(())
    }
}
