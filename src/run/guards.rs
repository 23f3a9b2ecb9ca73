//! The order between a launch and all other uses of its operands, where cudarc tracks events.

use cudarc::driver::{CudaSlice, CudaStream, CudaViewMut, DevicePtr, DevicePtrMut, SyncOnDrop};

use super::shared::Readers;

/// That a launch uses a buffer. Dropped when the launch is in the stream.
pub(super) enum Use<'a> {
    /// It reads or writes a buffer of cudarc's, whose guard records that when it is dropped.
    Slice { guard: SyncOnDrop<'a>, is_read: bool },
    /// It reads memory that streams share.
    Shared(&'a Readers, &'a CudaStream),
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        match self {
            // cudarc has one event a buffer for what reads it, and is about to record it again. So that it stands for
            // earlier readers in other streams, too, this stream waits for these, now that its own launch is under way.
            Use::Slice { guard: SyncOnDrop::Record(Some((event, stream))), is_read: true } => {
                if stream.context().is_managing_stream_synchronization() {
                    stream.context().record_err(stream.wait(event));
                }
            }
            Use::Slice { .. } => {}
            Use::Shared(readers, stream) => readers.note(stream),
        }
    }
}

/// The address of a buffer, for nothing to be done with it but to be remembered. The stream waits for what writes it; the guard would
/// record a use, of which there is none: in the place of another stream's, which nobody waited for.
pub(super) fn address_without_use<T>(view: &impl DevicePtr<T>, stream: &CudaStream) -> u64 {
    let (address, guard) = view.device_ptr(stream);
    std::mem::forget(guard);
    address
}

/// Takes the address of every buffer of a launch, and what must happen when the launch is in the stream.
pub(super) trait Guards<'a> {
    /// Whether uses are tracked.
    const TRACKS: bool;

    /// The launch reads or writes a buffer of cudarc's.
    fn slice(&mut self, guard: SyncOnDrop<'a>, is_read: bool);

    /// The launch reads memory that streams share.
    fn shared(&mut self, readers: &'a Readers, stream: &'a CudaStream);

    /// There is an owner to be held until the launch has run.
    fn has_owner(&mut self);

    #[inline(always)]
    fn read<T>(&mut self, view: &'a impl DevicePtr<T>, stream: &'a CudaStream) -> u64 {
        let (address, guard) = view.device_ptr(stream);
        self.slice(guard, true);
        address
    }

    fn write_slice<T>(&mut self, slice: &'a mut CudaSlice<T>, stream: &'a CudaStream) -> u64 {
        let (address, guard) = slice.device_ptr_mut(stream);
        self.slice(guard, false);
        address
    }

    #[inline(always)]
    fn write<T>(&mut self, view: &'a mut CudaViewMut<'_, T>, stream: &'a CudaStream) -> u64 {
        let (address, guard) = view.device_ptr_mut(stream);
        self.slice(guard, false);
        address
    }
}

/// cudarc tracks no events, so that its guards have nothing to do on drop.
#[derive(Default)]
pub(super) struct Untracked {
    /// Whether owners are to be held until the launch has run.
    pub(super) has_owners: bool,
}

impl<'a> Guards<'a> for Untracked {
    const TRACKS: bool = false;

    #[inline(always)]
    fn slice(&mut self, guard: SyncOnDrop<'a>, _is_read: bool) {
        std::mem::forget(guard);
    }

    #[inline(always)]
    fn shared(&mut self, _readers: &'a Readers, _stream: &'a CudaStream) {}

    #[inline(always)]
    fn has_owner(&mut self) {
        self.has_owners = true;
    }
}

/// Operands of a launch at most: A, B1 and B2 with scales, two α, offsets, C, workspace.
const USUAL: usize = 11;

/// All guards; in a fixed array as far as that goes, since a launch allocates nothing.
#[derive(Default)]
pub(super) struct Tracked<'a> {
    usual: [Option<Use<'a>>; USUAL],
    used: usize,
    /// So that none is lost where there are more.
    more: Vec<Use<'a>>,
    /// As [`Untracked::has_owners`].
    pub(super) has_owners: bool,
}

impl<'a> Tracked<'a> {
    fn keep(&mut self, used: Use<'a>) {
        match self.usual.get_mut(self.used) {
            Some(slot) => {
                *slot = Some(used);
                self.used += 1;
            }
            None => self.more.push(used),
        }
    }
}

impl<'a> Guards<'a> for Tracked<'a> {
    const TRACKS: bool = true;

    fn slice(&mut self, guard: SyncOnDrop<'a>, is_read: bool) {
        self.keep(Use::Slice { guard, is_read });
    }

    fn shared(&mut self, readers: &'a Readers, stream: &'a CudaStream) {
        self.keep(Use::Shared(readers, stream));
    }

    fn has_owner(&mut self) {
        self.has_owners = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No launch has so many operands yet.
    #[test]
    fn more_guards_than_usual_are_kept() {
        let mut guards = Tracked::default();
        (0..USUAL + 3).for_each(|_| guards.slice(SyncOnDrop::Record(None), true));
        assert_eq!((guards.usual.iter().flatten().count(), guards.more.len()), (USUAL, 3));
    }
}
