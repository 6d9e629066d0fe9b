//! Threads that an extension creates belong to it.
//!
//! The program defines `pthread_create` itself. The dynamic linker looks there first, also for libraries that are opened
//! later, so every thread that a plugin creates comes by here. While no extension's code runs, the call is passed on
//! as it is.
//!
//! The linker puts the definition into the program because [`interposed`] names it, and into the table of what the program
//! exports because the C library, which it links to, defines the same name. Where either fails (a program without
//! dynamic linking, a plugin opened so that it looks into itself first), plugins get the C library's function, and their
//! threads are nobody's.

use std::{
    ffi::{CStr, c_int, c_void},
    mem, ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{layout::Word, slot};

// SAFETY: no more than the types of two C functions; each call of one says why it may be made.
/// What a thread runs. It may unwind: that is how `pthread_exit` and cancellation end a thread.
type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
/// `pthread_create` itself.
type Create =
    unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

const NAME: &CStr = c"pthread_create";

/// The C library's function, once it was looked up.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// What the new thread needs to know.
struct Birth {
    who: u16,
    start: Start,
    argument: *mut c_void,
}

/// Whether a library that is opened now would call the definition below.
pub(crate) fn interposed() -> bool {
    let ours: Create = pthread_create;
    // SAFETY: the name is a string that ends with a zero; the lookup changes nothing.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr()) };
    ptr::eq(found, ours as *const c_void)
}

/// Creates a thread, as the function of this name in the C library does; the thread is its creator's.
///
/// # Safety
///
/// As for the C library's.
// SAFETY: it keeps the contract of the function that it stands in for, by calling that with what it was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some(real) = real() else { return libc::EAGAIN };
    let who = Word::unpack(slot::here().0).who;
    if who == 0 {
        // SAFETY: the caller's own arguments.
        return unsafe { real(thread, attributes, start, argument) };
    }
    let birth = Box::into_raw(Box::new(Birth { who, start, argument }));
    // SAFETY: the caller's own arguments, but for `begin`, which takes the box that goes with it.
    let result = unsafe { real(thread, attributes, begin, birth.cast()) };
    if result != 0 {
        // SAFETY: no thread came to be that could have taken it.
        drop(unsafe { Box::from_raw(birth) });
    }
    result
}

/// The life of an extension's own thread. Holds nothing with a destructor while the thread's own function runs, so that
/// the C library may unwind it.
// SAFETY: `birth` is a box from `pthread_create` above, and the thread is its only owner.
unsafe extern "C-unwind" fn begin(birth: *mut c_void) -> *mut c_void {
    // SAFETY: see above.
    let Birth { who, start, argument } = *unsafe { Box::from_raw(birth.cast::<Birth>()) };
    slot::own(who);
    // SAFETY: what the creator asked for.
    unsafe { start(argument) }
}

/// The C library's `pthread_create`.
fn real() -> Option<Create> {
    let mut found = REAL.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the name is a string that ends with a zero; the lookup changes nothing.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, NAME.as_ptr()) };
        REAL.store(found, Ordering::Relaxed);
    }
    // SAFETY: null is `None`, and anything else under this name is a function of this type.
    unsafe { mem::transmute::<*mut c_void, Option<Create>>(found) }
}
