//! Device memory of a launch: whose it is, and so how its use is ordered and how long it must live.

use std::fmt;
use std::ops::Range;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut};

use half::{bf16, f16};

use super::LaunchStream;
use super::capture::is_captured_untracked;
use super::check::{self, Buffer, ContextId};
use super::guards::{Guards, address_without_use};
use super::retired::Owner;
use super::shared::Shared;
use crate::error::Result;

/// Device memory of `T`s that is read, borrowed: a view or a whole slice of cudarc's, a [`Shared`] one, or memory that
/// somebody else manages ([`Memory::from_raw`]).
pub struct Memory<'a, T>(Source<'a, T>);

enum Source<'a, T> {
    /// cudarc's, which tracks its use.
    View(CudaView<'a, T>),
    /// Tracks its use for each stream.
    Shared(&'a Shared<T>),
    Raw(Raw<'a>),
}

/// Device memory of `T`s that is written: a view or a whole slice of cudarc's, borrowed; or memory that somebody else
/// manages ([`MemoryMut::from_raw`]).
pub struct MemoryMut<'a, T>(Target<'a, T>);

enum Target<'a, T> {
    View(CudaViewMut<'a, T>),
    Raw(Raw<'a>),
}

/// Memory whose use nothing here tracks.
#[derive(Clone, Copy)]
struct Raw<'a> {
    address: u64,
    elements: u64,
    owner: Option<&'a Owner>,
}

impl Raw<'_> {
    #[inline(always)]
    fn address<'b>(&self, guards: &mut impl Guards<'b>) -> u64 {
        if self.owner.is_some() {
            guards.has_owner();
        }
        self.address
    }

    #[inline(always)]
    fn buffer(&self) -> Buffer {
        Buffer { elements: self.elements, context: Buffer::ANY, ordinal: 0 }
    }

    /// Values `range` of it, if there are so many.
    fn part<T>(&self, range: Range<usize>) -> Option<Self> {
        let is_within = range.start <= range.end && range.end as u64 <= self.elements;
        let address = self.address + (range.start * size_of::<T>()) as u64;
        is_within.then_some(Self { address, elements: range.len() as u64, owner: self.owner })
    }
}

impl<'a, T> Memory<'a, T> {
    /// Memory of `elements` values at a device address that somebody else manages: another cudarc, a framework, C.
    /// Nothing is copied and no event is made for it.
    ///
    /// # Safety
    /// The memory is of the device that it is used on. From a launch until the device has run it, the memory stays
    /// allocated (an [`owner`](Memory::owner) sees to that) and nothing writes it; what wrote it is before the launch in
    /// its stream, or the stream waits for it.
    #[inline]
    pub unsafe fn from_raw(address: u64, elements: usize) -> Self {
        Self(Source::Raw(Raw { address, elements: elements as u64, owner: None }))
    }

    /// What keeps memory from [`Memory::from_raw`] allocated: a launch clones it, and holds the clone until the device has
    /// run what reads the memory. Launches with owners take a [`RawStream`](super::RawStream). Memory of cudarc's needs
    /// none.
    #[inline]
    #[must_use]
    pub fn owner(mut self, owner: &'a Owner) -> Self {
        if let Source::Raw(raw) = &mut self.0 {
            raw.owner = Some(owner);
        }
        self
    }

    /// Refuses memory that is in another context than the stream; of memory that cudarc does not manage its caller vouches.
    ///
    /// # Errors
    /// Operand, with `name` and both devices.
    pub fn check_context(&self, stream: &impl LaunchStream, name: &str) -> Result<()> {
        ContextId::of(stream.stream()).check(name, &self.buffer())
    }

    /// Refuses memory that does not begin at a multiple of so many bytes: before the first of several launches, not before that which
    /// takes it.
    ///
    /// # Errors
    /// Operand, with `name` and the address; or if the stream is being captured while cudarc tracks events.
    pub fn check_alignment(&self, stream: &impl LaunchStream, name: &str, bytes: u64) -> Result<()> {
        check::aligned(&[(name, self.place_ahead(stream.stream())?)], bytes)
    }

    /// As [`Memory::place`], ahead of a launch that may refuse a capture. Where events are tracked asking waits, which would spoil the
    /// capture, so it is refused here.
    pub(super) fn place_ahead(&self, stream: &CudaStream) -> Result<u64> {
        if stream.context().is_event_tracking() {
            is_captured_untracked(stream)?;
        }
        Ok(self.place(stream))
    }

    /// Its address, for nothing to be done with it but to be remembered.
    pub(super) fn place(&self, stream: &CudaStream) -> u64 {
        match &self.0 {
            Source::View(view) => address_without_use(view, stream),
            Source::Raw(raw) => raw.address,
            Source::Shared(shared) => shared.place(),
        }
    }

    #[inline]
    fn shared(&self) -> Option<&'a Shared<T>> {
        if let Source::Shared(shared) = self.0 { Some(shared) } else { None }
    }

    /// Values `range` of it; none, if it has not so many, or if it is a part of [`Shared`] memory that is not cudarc's.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Option<Memory<'a, T>> {
        if range == (0..usize::try_from(self.elements()).ok()?) {
            return Some(self.again());
        }
        match &self.0 {
            Source::View(view) => view.try_slice(range).map(Memory::from),
            Source::Shared(shared) => shared.slice()?.try_slice(range).map(Memory::from),
            Source::Raw(raw) => Some(Self(Source::Raw(raw.part::<T>(range)?))),
        }
    }

    /// The same memory, borrowed again.
    #[inline]
    pub(super) fn again(&self) -> Memory<'a, T> {
        Memory(match &self.0 {
            Source::View(view) => Source::View(view.slice(..)),
            Source::Shared(shared) => Source::Shared(shared),
            Source::Raw(raw) => Source::Raw(*raw),
        })
    }

    /// How many values there are.
    #[must_use]
    #[inline]
    pub fn elements(&self) -> u64 {
        match &self.0 {
            Source::View(view) => view.len() as u64,
            Source::Raw(raw) => raw.elements,
            Source::Shared(shared) => shared.elements(),
        }
    }

    /// How large it is, and where.
    #[inline(always)]
    pub(super) fn buffer(&self) -> Buffer {
        match &self.0 {
            Source::View(view) => Buffer::of(view),
            Source::Raw(raw) => raw.buffer(),
            Source::Shared(shared) => shared.buffer(),
        }
    }

    /// Its address, for a launch on `stream`.
    #[inline(always)]
    pub(super) fn address<'b>(&'b self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> u64 {
        match &self.0 {
            Source::View(view) => guards.read(view, stream),
            Source::Raw(raw) => raw.address(guards),
            Source::Shared(shared) => shared.address(stream, guards),
        }
    }

    /// What has to be held until a launch has run.
    #[inline]
    pub(super) fn held(&self) -> Option<&'a Owner> {
        if let Source::Raw(raw) = self.0 { raw.owner } else { None }
    }

    /// Whether what wrote it needs no order here.
    #[inline(always)]
    pub(super) fn is_there(&self) -> bool {
        match &self.0 {
            Source::Shared(shared) => shared.is_there(),
            Source::View(_) | Source::Raw(_) => true,
        }
    }

    /// Orders a launch on `stream` behind what wrote it, as far as that is known here.
    #[inline]
    pub(super) fn order(&self, stream: &CudaStream, is_captured: bool) -> Result<()> {
        self.shared().map_or(Ok(()), |shared| shared.order(stream, is_captured))
    }

    /// What a graph that reads it can hold of it.
    pub(super) fn held_by_graph(&self) -> Option<Owner>
    where
        T: Send + Sync + 'static,
    {
        self.shared().map(Shared::as_owner)
    }
}

impl<'a, T> MemoryMut<'a, T> {
    /// Memory of `elements` values at a device address that somebody else manages. Nothing is copied and no event is
    /// made for it.
    ///
    /// # Safety
    /// The memory is of the device that it is used on. From a launch until the device has run it, the memory stays
    /// allocated (an [`owner`](MemoryMut::owner) sees to that) and nothing else reads or writes it; what used it before
    /// is before the launch in its stream, or the stream waits for it.
    #[inline]
    pub unsafe fn from_raw(address: u64, elements: usize) -> Self {
        Self(Target::Raw(Raw { address, elements: elements as u64, owner: None }))
    }

    /// How many values there is room for.
    #[must_use]
    #[inline]
    pub fn elements(&self) -> u64 {
        self.buffer().elements
    }

    /// Values `range` of it; none, if it has not so many.
    #[must_use]
    pub fn part(&mut self, range: Range<usize>) -> Option<MemoryMut<'_, T>> {
        match &mut self.0 {
            Target::View(view) => view.try_slice_mut(range).map(MemoryMut::from),
            Target::Raw(raw) => Some(MemoryMut(Target::Raw(raw.part::<T>(range)?))),
        }
    }

    /// The same memory, to be read.
    #[must_use]
    pub fn as_memory(&self) -> Memory<'_, T> {
        match &self.0 {
            Target::View(view) => view.as_view().into(),
            Target::Raw(raw) => Memory(Source::Raw(*raw)),
        }
    }

    /// As [`Memory::owner`].
    #[inline]
    #[must_use]
    pub fn owner(mut self, owner: &'a Owner) -> Self {
        if let Target::Raw(raw) = &mut self.0 {
            raw.owner = Some(owner);
        }
        self
    }

    /// Refuses memory that is in another context than the stream; of memory that cudarc does not manage its caller vouches.
    ///
    /// # Errors
    /// Operand, with `name` and both devices.
    pub fn check_context(&self, stream: &impl LaunchStream, name: &str) -> Result<()> {
        ContextId::of(stream.stream()).check(name, &self.buffer())
    }

    /// As [`Memory::check_alignment`].
    ///
    /// # Errors
    /// As there.
    pub fn check_alignment(&self, stream: &impl LaunchStream, name: &str, bytes: u64) -> Result<()> {
        self.as_memory().check_alignment(stream, name, bytes)
    }

    #[inline(always)]
    pub(super) fn buffer(&self) -> Buffer {
        match &self.0 {
            Target::View(view) => Buffer::of(view),
            Target::Raw(raw) => raw.buffer(),
        }
    }

    /// Its address, for a launch on `stream` that writes it.
    #[inline(always)]
    pub(super) fn address<'b>(&'b mut self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> u64 {
        match &mut self.0 {
            Target::View(view) => guards.write(view, stream),
            Target::Raw(raw) => raw.address(guards),
        }
    }

    /// Its address, for nothing to be done with it but to be remembered.
    pub(super) fn place(&self, stream: &CudaStream) -> u64 {
        self.as_memory().place(stream)
    }

    #[inline]
    pub(super) fn held(&self) -> Option<&'a Owner> {
        if let Target::Raw(raw) = &self.0 { raw.owner } else { None }
    }
}

impl MemoryMut<'_, u8> {
    /// Its first `bytes` bytes and the rest; none, if it has not so many.
    #[must_use]
    pub fn split_at(&mut self, bytes: usize) -> Option<(MemoryMut<'_, u8>, MemoryMut<'_, u8>)> {
        match &mut self.0 {
            Target::View(view) => view.try_split_at_mut(bytes).map(|(first, rest)| (first.into(), rest.into())),
            Target::Raw(raw) => {
                let all = usize::try_from(raw.elements).ok()?;
                let raw = |range| Some(MemoryMut(Target::Raw(raw.part::<u8>(range)?)));
                Some((raw(0..bytes)?, raw(bytes..all)?))
            }
        }
    }

    /// The same memory as whole numbers of a type; bytes beyond the last are left out.
    #[must_use]
    pub fn numbers_mut<T: Number>(&mut self) -> Option<MemoryMut<'_, T>> {
        let elements = self.elements() / size_of::<T>() as u64;
        let target = match &mut self.0 {
            // SAFETY: every bit pattern is a `Number`, and so many lie within; launches check the alignment.
            Target::View(view) => Target::View(unsafe { view.transmute_mut(usize::try_from(elements).ok()?) }?),
            Target::Raw(raw) => Target::Raw(Raw { elements, ..*raw }),
        };
        Some(MemoryMut(target))
    }

    /// The same, to be read.
    #[must_use]
    pub fn as_numbers<T: Number>(&self) -> Option<Memory<'_, T>> {
        let elements = self.elements() / size_of::<T>() as u64;
        let source = match &self.0 {
            // SAFETY: as above.
            Target::View(view) => Source::View(unsafe { view.transmute(usize::try_from(elements).ok()?) }?),
            Target::Raw(raw) => Source::Raw(Raw { elements, ..*raw }),
        };
        Some(Memory(source))
    }
}

/// Numbers that any bytes are.
pub trait Number {}

impl Number for f16 {}
impl Number for bf16 {}
impl Number for f32 {}
impl Number for i32 {}

impl<'a, T> From<CudaView<'a, T>> for Memory<'a, T> {
    #[inline]
    fn from(view: CudaView<'a, T>) -> Self {
        Self(Source::View(view))
    }
}

impl<'a, T> From<&'a CudaSlice<T>> for Memory<'a, T> {
    #[inline]
    fn from(slice: &'a CudaSlice<T>) -> Self {
        Self(Source::View(slice.as_view()))
    }
}

impl<'a, T> From<&'a Shared<T>> for Memory<'a, T> {
    #[inline]
    fn from(shared: &'a Shared<T>) -> Self {
        Self(Source::Shared(shared))
    }
}

impl<'a, T> From<CudaViewMut<'a, T>> for MemoryMut<'a, T> {
    #[inline]
    fn from(view: CudaViewMut<'a, T>) -> Self {
        Self(Target::View(view))
    }
}

impl<'a, T> From<&'a mut CudaSlice<T>> for MemoryMut<'a, T> {
    #[inline]
    fn from(slice: &'a mut CudaSlice<T>) -> Self {
        Self(Target::View(slice.as_view_mut()))
    }
}

impl<T> fmt::Debug for Memory<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements", self.buffer().elements)
    }
}

impl<T> fmt::Debug for MemoryMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements", self.buffer().elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_within() {
        // SAFETY: nothing is launched.
        let mut bytes = unsafe { MemoryMut::<u8>::from_raw(256, 100) };
        assert!(bytes.split_at(101).is_none() && bytes.part(60..101).is_none());
        let (mut first, mut rest) = bytes.split_at(64).unwrap();
        let place =
            |memory: &Target<'_, i32>| if let Target::Raw(raw) = memory { (raw.address, raw.elements) } else { (0, 0) };
        assert_eq!(place(&first.numbers_mut::<i32>().unwrap().0), (256, 16));
        let mut numbers = rest.numbers_mut::<i32>().unwrap();
        assert_eq!(place(&numbers.0), (320, 9));
        assert_eq!(place(&numbers.part(2..5).unwrap().0), (328, 3));
        let part = numbers.as_memory().part(4..9).unwrap();
        assert!(matches!(part.0, Source::Raw(Raw { address: 336, elements: 5, owner: None })));
    }
}
