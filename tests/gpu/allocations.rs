//! A launch allocates nothing on the host.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use half::f16;
use warpsmith::pick;
use warpsmith::run::{Matrix, MatrixMut, Operands, wait};
use warpsmith::spec::{Activation, Problem};

use crate::bench::Bench;

/// Counts this thread's allocations.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it is; the counter is a constant-initialised thread local
// without a destructor, so that using it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

pub fn a_launch_makes_none(bench: &Bench) -> Result<(), String> {
    let _turn = bench.turn.lock().unwrap();
    let stream = &bench.stream;
    let problem = Problem::dual_gemm(Activation::Silu).n(256).k(1024);
    let choice = pick::choose(&problem, 16, bench.arch()).unwrap();
    assert!(choice.spec().variant().split_k > 1, "{}: two launches are the harder case", choice.spec());
    let kernel = bench.kernel(choice.spec())?;
    let a = stream.alloc_zeros::<f16>(16 * 1024).unwrap();
    let (codes, scales) = (stream.alloc_zeros::<u8>(256 * 512).unwrap(), stream.alloc_zeros::<u8>(256 * 64).unwrap());
    let mut c = stream.alloc_zeros::<f16>(16 * 256).unwrap();
    let mut workspace = kernel.workspace(stream, 16).unwrap();
    let mut launch = || {
        let b = || Matrix::nvfp4(&codes, &scales);
        let operands = Operands::dual_gemm(16, Matrix::f16(&a), b(), b(), MatrixMut::f16(&mut c));
        kernel.launch(stream, operands.workspace(workspace.as_view_mut()))
    };
    launch().map_err(|error| error.to_string())?;
    let before = COUNT.with(Cell::get);
    for _ in 0..100 {
        launch().map_err(|error| error.to_string())?;
    }
    let made = COUNT.with(Cell::get) - before;
    wait(stream, std::time::Duration::from_secs(10)).map_err(|error| error.to_string())?;
    if made == 0 { Ok(()) } else { Err(format!("{made} allocations in 100 launches")) }
}
