//! A library that aborts the process which opens it, before anything of it can be asked.
//!
//! Only the library file does so: a program that links the crate does not, because nothing refers to the
//! constructor and the archive member that holds it is left out.

mod constructor {
    extern "C" fn abort() {
        std::process::abort();
    }

    // SAFETY: the section holds pointers to functions of this signature, which the loader calls.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static CONSTRUCTOR: extern "C" fn() = abort;
}
