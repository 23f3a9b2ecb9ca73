//! Addresses of buffers, and cudarc's record of who uses them.

use cudarc::driver::{CudaStream, CudaViewMut, DevicePtr, DevicePtrMut, SyncOnDrop};

/// Takes the address of every buffer of a launch, with cudarc's guard for it: on drop it records "used up to here" in the
/// stream, for other streams and for the release of the memory.
pub(super) trait Guards<'a> {
    fn keep(&mut self, guard: SyncOnDrop<'a>);

    #[inline]
    fn read<T>(&mut self, view: &'a impl DevicePtr<T>, stream: &'a CudaStream) -> u64 {
        let (address, guard) = view.device_ptr(stream);
        self.keep(guard);
        address
    }

    #[inline]
    fn write<T>(&mut self, view: &'a mut CudaViewMut<'_, T>, stream: &'a CudaStream) -> u64 {
        let (address, guard) = view.device_ptr_mut(stream);
        self.keep(guard);
        address
    }
}

/// cudarc tracks no events, so that its guards have nothing to do on drop.
pub(super) struct Untracked;

impl<'a> Guards<'a> for Untracked {
    #[inline]
    fn keep(&mut self, guard: SyncOnDrop<'a>) {
        std::mem::forget(guard);
    }
}

/// All guards, in a fixed array, since a launch allocates nothing.
#[derive(Default)]
pub(super) struct Tracked<'a> {
    // A, B1, B2 with scales, two α, offsets, C, workspace.
    slots: [Option<SyncOnDrop<'a>>; 11],
    used: usize,
}

impl<'a> Guards<'a> for Tracked<'a> {
    fn keep(&mut self, guard: SyncOnDrop<'a>) {
        if let Some(slot) = self.slots.get_mut(self.used) {
            *slot = Some(guard);
            self.used += 1;
        }
    }
}
