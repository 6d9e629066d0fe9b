//! A stack for signal handlers, without which the overflow of a thread's own stack could not be noted.

use std::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr::{self, NonNull},
};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Far more than the handler needs, also where the processor's state that the system saves there is large. Memory is
/// taken only when it is used.
const SIZE: usize = 64 * 1024;

/// The alternate signal stack of the thread that made it; given back when it is dropped there.
pub(crate) struct AlternateStack(NonNull<c_void>);

impl AlternateStack {
    /// Gives this thread an alternate stack, unless it has one or there is no memory for it.
    pub fn install() -> Option<Self> {
        if current()?.ss_flags & libc::SS_DISABLE == 0 {
            return None;
        }
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::STACK);
        // SAFETY: a new mapping at a place that the system chooses touches nothing that exists.
        let memory = NonNull::new(unsafe { mmap_anonymous(ptr::null_mut(), SIZE, protection, flags) }.ok()?)?;
        let stack = Self(memory);
        let new = libc::stack_t { ss_sp: memory.as_ptr(), ss_flags: 0, ss_size: SIZE };
        // SAFETY: the memory is this value's own, and it is unmapped only after the thread stopped using it.
        let done = unsafe { libc::sigaltstack(&raw const new, ptr::null_mut()) } == 0;
        done.then_some(stack)
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        if current().is_none_or(|now| now.ss_sp == self.0.as_ptr()) {
            let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: SIZE };
            // SAFETY: disabling needs no memory. It is refused while a handler runs on this stack.
            if unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) } != 0 {
                return;
            }
        }
        // SAFETY: the mapping was made by `install` with this size, and this thread, the only one that knew of it, does
        // not use it any more.
        let _ = unsafe { munmap(self.0.as_ptr(), SIZE) };
    }
}

/// What this thread uses now.
fn current() -> Option<libc::stack_t> {
    let mut now = MaybeUninit::uninit();
    // SAFETY: asking changes nothing, and `now` is a valid place for the answer.
    let done = unsafe { libc::sigaltstack(ptr::null(), now.as_mut_ptr()) } == 0;
    // SAFETY: the call filled it in if it succeeded.
    done.then(|| unsafe { now.assume_init() })
}
