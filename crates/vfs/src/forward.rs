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
