//! A macro for methods that only forward their arguments.

/// Methods of a trait's implementation, each of which calls one with the same arguments: that of a field, or another of the
/// same value.
///
/// ```
/// trait Length {
///     fn len(&self) -> usize;
///     fn has(&self, byte: &u8) -> bool;
/// }
///
/// struct Twice {
///     bytes: Vec<u8>,
/// }
///
/// impl Twice {
///     fn double(&self) -> usize {
///         2 * self.bytes.len()
///     }
/// }
///
/// impl Length for Twice {
///     weft_vfs::forward! {
///         len => double() -> usize;
///         has => bytes.contains(byte: &u8) -> bool;
///     }
/// }
/// assert!(Twice { bytes: vec![7] }.has(&7));
/// ```
#[macro_export]
macro_rules! forward {
    ($($name:ident => $($to:ident).+ ($($arg:ident: $type:ty),*) $(-> $ret:ty)?;)*) => {
        $(fn $name(&self $(, $arg: $type)*) $(-> $ret)? {
            self.$($to).+($($arg),*)
        })*
    };
}

/// The methods of a [`FileSystem`](crate::FileSystem) that change something, list a directory or ask the core, each of which is refused:
/// what is left of one that only looks.
#[macro_export]
macro_rules! only_looks {
    ($why:literal) => {
        $crate::only_looks! { $why;
            setattr($crate::Ino, &$crate::SetAttr) -> $crate::Attr;
            create($crate::Ino, &[u8], &$crate::CreateArgs<'_>) -> $crate::Attr;
            create_unnamed($crate::Ino, &$crate::CreateArgs<'_>, bool) -> $crate::Attr;
            link($crate::Ino, $crate::Ino, &[u8]) -> $crate::Attr;
            unlink($crate::Ino, &[u8]) -> ();
            rmdir($crate::Ino, &[u8]) -> ();
            rename($crate::Ino, &[u8], $crate::Ino, &[u8], $crate::RenameFlags) -> ();
            readdir($crate::Ino, u64, &mut dyn FnMut($crate::DirEntry<'_>) -> bool) -> ();
            newest_cookie($crate::Ino) -> u64;
            write($crate::Ino, u64, &[u8]) -> ();
            write_through($crate::Ino, u64, &[u8]) -> ();
            write_late($crate::Ino, u64, &[u8], bool, $crate::TimeSpec) -> ();
            write_back($crate::Ino) -> ();
            write_in_order($crate::Ino) -> ();
            fallocate($crate::Ino, $crate::FallocateMode, u64, u64) -> ();
            seek($crate::Ino, u64, $crate::SeekTarget) -> u64;
            fsync($crate::Ino) -> ();
            sync() -> ();
            setxattr($crate::Ino, &[u8], &[u8], $crate::XattrMode) -> ();
            listxattr($crate::Ino) -> Vec<Vec<u8>>;
            removexattr($crate::Ino, &[u8]) -> ();
            set_with_xattrs($crate::Ino, &$crate::SetAttr, &[$crate::XattrChange<'_>]) -> $crate::Attr;
            statfs() -> $crate::FsStats;
            set_tag($crate::Ino, $crate::Tag) -> ();
            tag($crate::Ino) -> $crate::Tag;
        }
    };
    ($why:literal; $($name:ident($($type:ty),*) -> $ret:ty;)*) => {
        $(fn $name(&self $(, _: $type)*) -> $crate::FsResult<$ret> {
            Err($crate::FsError::Unsupported($why))
        })*
    };
}
