//! Entries of functions with a variable number of arguments, which Rust cannot define: they put the argument registers where
//! the C calling convention of x86-64 keeps a `va_list`, and hand over that list.
//!
//! ```text
//!  rsp +   0  va_list: gp_offset u32, fp_offset u32, overflow_arg_area, reg_save_area
//!      +  32  reg_save_area: rdi rsi rdx rcx r8 r9, xmm0 .. xmm7
//!      + 216  return address
//!      + 224  overflow_arg_area: arguments on the stack
//! ```

/// Exports `name` with so many named arguments; `inner` gets them and a pointer to the `va_list` of the others.
macro_rules! entries {
    ($($name:ident: $named:tt => $inner:ident;)*) => {
        $(
            /// # Safety
            /// As the function's manual says.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                // At entry rsp is 8 off a multiple of 16; below it is one. al tells whether vector registers are used.
                std::arch::naked_asm!(
                    "sub rsp, 216",
                    "mov [rsp + 32], rdi",
                    "mov [rsp + 40], rsi",
                    "mov [rsp + 48], rdx",
                    "mov [rsp + 56], rcx",
                    "mov [rsp + 64], r8",
                    "mov [rsp + 72], r9",
                    "test al, al",
                    "je 2f",
                    "movaps [rsp + 80], xmm0",
                    "movaps [rsp + 96], xmm1",
                    "movaps [rsp + 112], xmm2",
                    "movaps [rsp + 128], xmm3",
                    "movaps [rsp + 144], xmm4",
                    "movaps [rsp + 160], xmm5",
                    "movaps [rsp + 176], xmm6",
                    "movaps [rsp + 192], xmm7",
                    "2:",
                    concat!("mov dword ptr [rsp], 8 * ", $named),
                    "mov dword ptr [rsp + 4], 48",
                    "lea rax, [rsp + 224]",
                    "mov [rsp + 8], rax",
                    "lea rax, [rsp + 32]",
                    "mov [rsp + 16], rax",
                    crate::variadic::entries!(@list $named),
                    "call {inner}",
                    "add rsp, 216",
                    "ret",
                    inner = sym $inner,
                )
            }
        )*
    };
    // The register behind the named arguments.
    (@list 1) => { "mov rsi, rsp" };
    (@list 2) => { "mov rdx, rsp" };
    (@list 3) => { "mov rcx, rsp" };
}
pub(crate) use entries;
