//! Counts the allocations of a thread, in the whole test binary.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts this thread's allocations.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Bytes that the thread has allocated and not freed; what another thread frees or has allocated makes it wrong by as
    /// much, so it may be negative.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it is; the counters are constant-initialised thread locals
// without destructors, so that using them allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        let held = HELD.get().wrapping_add_unsigned(layout.size());
        HELD.set(held);
        PEAK.set(PEAK.get().max(held));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub_unsigned(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What this thread has allocated so far.
pub fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

/// What `f` gives, and the most bytes that this thread held meanwhile beyond those that it held before.
pub fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let given = f();
    (given, usize::try_from(PEAK.get() - before).unwrap_or(0))
}
