//! What the tensor memory accelerator knows of the tokens.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::LocalKey;

use cudarc::driver::DriverError;
use cudarc::driver::sys::{
    self, CUresult, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use crate::format::Format;
use crate::path::{Boxes, WIDTHS_MAX};
use crate::spec::Problem;

/// Bytes of a row of the box: as wide as the swizzle.
const BOX_BYTES: u32 = 128;
/// Maps that a thread remembers, as a power of two: matrices of tokens in use at a time, times kernels that read them.
const REMEMBERED_LOG2: u32 = 6;
/// 2⁶⁴ over the golden ratio (Knuth, The Art of Computer Programming 3, 6.4): the upper bits of a product with it are
/// well mixed.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A map for each width, and behind them that of a last tile; the others are not looked at.
pub(super) type Maps = [CUtensorMap; MAPS_MAX];
const MAPS_MAX: usize = WIDTHS_MAX + 1;

/// What a kernel that reads no tokens through maps is given for them.
pub(super) static NO_MAPS: Maps = [CUtensorMap { opaque: [0; 16] }; MAPS_MAX];

/// How a kernel reads tokens `[rows, K]`: in 16-bit formats seen as `[K/64][rows][64]`, so that one box is a whole stage of
/// rows; in e4m3 as they are, so that what a box of 128 has behind an odd K/64 is zeros.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBoxes {
    /// All of it but the ordinal in a few words, to be compared.
    words: [u64; 3],
    /// Counted up from kernel to kernel: those of a plan, which take turns with the same tokens, all remember their maps in
    /// places of their own.
    ordinal: usize,
    k: u32,
    format: Format,
    /// Rows of the box of each width that a tile may have, ascending; 0 where there are fewer widths.
    rows: [u32; WIDTHS_MAX],
    /// Blocks of K of a box.
    blocks: u32,
    /// Rows of a tile whose last one may have a box of its own; 0, if it never has.
    few_of: u32,
}

/// Tokens `[rows, K]` in device memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tokens {
    pub(super) address: u64,
    /// Bytes that may be read there: those of `rows` rows, perhaps of more.
    pub(super) bytes: u64,
    /// Rows of the last tile, if it has a box of its own; else 0.
    pub(super) few: u32,
}

/// What the maps of a launch depend on, and nothing else: address and bytes of the tokens, and the words of the boxes or of what
/// else is read. Words of one size, since what is written in one size and read at once in another has to wait for the write.
pub(super) type Key<const WORDS: usize> = [u64; WORDS];

/// The maps that a thread used last, each in the place that tokens and kernel lead to.
pub(super) struct Memo<const WORDS: usize>([(Key<WORDS>, Maps); 1 << REMEMBERED_LOG2]);

impl<const WORDS: usize> Memo<WORDS> {
    /// No kernel reads boxes of nothing, so that this key is nobody's.
    pub(super) const EMPTY: Self = Self([([0; WORDS], NO_MAPS); 1 << REMEMBERED_LOG2]);
}

/// What a thread remembers.
pub(super) type Remembered<const WORDS: usize> = LocalKey<RefCell<Memo<WORDS>>>;

thread_local! {
    static MEMO: RefCell<Memo<5>> = const { RefCell::new(Memo::EMPTY) };
}

impl TokenBoxes {
    pub(super) fn new(problem: &Problem, boxes: &Boxes) -> Self {
        let Boxes { rows, blocks, has_few } = *boxes;
        let (k, format) = (problem.depth(), problem.compute_format());
        let few_of = if has_few { rows.into_iter().max().unwrap_or(0) } else { 0 };
        Self { words: words(k, format, rows, blocks), ordinal: next_ordinal(), k, format, rows, blocks, few_of }
    }

    /// `m` rows, of which and of what lies behind them `bytes` may be read.
    #[inline]
    pub(super) fn tokens(&self, address: u64, bytes: u64, m: u32) -> Tokens {
        let few = m.checked_rem(self.few_of).unwrap_or(0);
        Tokens { address, bytes, few }
    }

    /// Calls `launch` with the maps of `tokens`: of all rows that may be read, whatever M is, but for the box of a last tile
    /// that is not whole. Where it has none, that tile reaches beyond, into rows that hold anything. They do no harm: each row
    /// of tokens is a column of the products of its own, and such columns are not stored.
    ///
    /// What is encoded follows from the arguments alone, so a thread that launches with the same ones encodes nothing.
    /// Encoding is arithmetic on the host: nothing is allocated, and the driver is not asked to wait.
    #[inline]
    pub(super) fn with_maps<R>(&self, tokens: Tokens, launch: impl FnOnce(&Maps) -> R) -> Result<R, DriverError> {
        let [first, second, third] = self.words;
        let key = [tokens.address, tokens.bytes, first, second, third | u64::from(tokens.few) << FEW_SHIFT];
        with_maps(&MEMO, key, self.ordinal, || self.encode(tokens), launch)
    }

    /// How many rows may be read.
    pub(super) fn rows_of(&self, tokens: Tokens) -> u64 {
        (tokens.bytes / self.row_bytes()).min(u64::from(Problem::M_MAX))
    }

    fn row_bytes(&self) -> u64 {
        self.format.bytes(self.k as usize) as u64
    }

    pub(super) fn encode(&self, tokens: Tokens) -> Result<Maps, DriverError> {
        let rows = self.rows_of(tokens);
        let mut maps = NO_MAPS;
        let widths = self.rows.iter().take_while(|box_rows| **box_rows > 0);
        let whole = widths.map(|box_rows| (*box_rows, self.blocks));
        let few = (tokens.few > 0).then_some((tokens.few, 1));
        for (map, (box_rows, blocks)) in maps.iter_mut().zip(whole.chain(few)) {
            *map = self.box_of(tokens.address, rows, box_rows, blocks)?;
        }
        Ok(maps)
    }

    fn box_of(&self, address: u64, rows: u64, box_rows: u32, blocks: u32) -> Result<CUtensorMap, DriverError> {
        if self.format == Format::E4m3 {
            return encode(&Tiled {
                data_type: CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
                address,
                extents: [u64::from(self.k), rows],
                strides: [self.row_bytes()],
                box_extents: [BOX_BYTES, box_rows],
                swizzle: CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            });
        }
        let data_type = match self.format {
            Format::Bf16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            _ => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        };
        let box_k = BOX_BYTES / self.format.bytes(1) as u32;
        encode(&Tiled {
            data_type,
            address,
            extents: [u64::from(box_k), rows, u64::from(self.k / box_k)],
            strides: [self.row_bytes(), u64::from(BOX_BYTES)],
            box_extents: [box_k, box_rows, blocks],
            swizzle: CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        })
    }
}

/// Tiles of a matrix: `RANK` extents, innermost first, with the strides in bytes of all but the first.
pub(super) struct Tiled<const RANK: usize, const STRIDES: usize> {
    pub(super) data_type: CUtensorMapDataType,
    pub(super) address: u64,
    pub(super) extents: [u64; RANK],
    pub(super) strides: [u64; STRIDES],
    pub(super) box_extents: [u32; RANK],
    pub(super) swizzle: CUtensorMapSwizzle,
}

/// Its map; what lies outside is zeros.
pub(super) fn encode<const RANK: usize, const STRIDES: usize>(
    tiled: &Tiled<RANK, STRIDES>,
) -> Result<CUtensorMap, DriverError> {
    const { assert!(STRIDES + 1 == RANK, "the innermost elements follow each other") };
    let element_strides = [1; RANK];
    let mut map = MaybeUninit::<CUtensorMap>::zeroed();
    // SAFETY: every pointer is to a live array of as many elements as a map of this rank takes; the address is not
    // followed.
    unsafe {
        sys::cuTensorMapEncodeTiled(
            map.as_mut_ptr(),
            tiled.data_type,
            RANK as u32,
            tiled.address as *mut std::ffi::c_void,
            tiled.extents.as_ptr(),
            tiled.strides.as_ptr(),
            tiled.box_extents.as_ptr(),
            element_strides.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            tiled.swizzle,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    }
    .result()?;
    // SAFETY: it was all zeros, and now is what the driver wrote: plain words either way.
    Ok(unsafe { map.assume_init() })
}

/// Calls `launch` with the maps that `key` stands for: those that this thread remembers, or what `encode` makes now. `ordinal`
/// is the kernel's.
#[inline]
pub(super) fn with_maps<const WORDS: usize, R>(
    memo: &'static Remembered<WORDS>,
    key: Key<WORDS>,
    ordinal: usize,
    encode: impl FnOnce() -> Result<Maps, DriverError>,
    launch: impl FnOnce(&Maps) -> R,
) -> Result<R, DriverError> {
    // The standard library inlines this one only. The memo is there for as long as the thread: it drops nothing.
    memo.try_with(|memo| memo.borrow_mut().maps(key, ordinal, encode).map(launch))
        .unwrap_or(Err(DriverError(CUresult::CUDA_ERROR_DEINITIALIZED)))
}

/// The ordinal of the next kernel that is loaded.
pub(super) fn next_ordinal() -> usize {
    static KERNELS: AtomicUsize = AtomicUsize::new(0);
    KERNELS.fetch_add(1, Relaxed)
}

impl<const WORDS: usize> Memo<WORDS> {
    #[inline]
    fn maps(
        &mut self,
        key: Key<WORDS>,
        ordinal: usize,
        encode: impl FnOnce() -> Result<Maps, DriverError>,
    ) -> Result<&Maps, DriverError> {
        let mixed = (key[0] ^ key[1].rotate_left(24)).wrapping_mul(GOLDEN) >> (64 - REMEMBERED_LOG2);
        let place = &mut self.0[(mixed as usize).wrapping_add(ordinal) % (1 << REMEMBERED_LOG2)];
        let differs = place.0.iter().zip(&key).fold(0, |differs, (known, word)| differs | (known ^ word));
        if differs != 0 {
            remember(place, key, encode)?;
        }
        Ok(&place.1)
    }
}

#[cold]
#[inline(never)]
fn remember<const WORDS: usize>(
    place: &mut (Key<WORDS>, Maps),
    key: Key<WORDS>,
    encode: impl FnOnce() -> Result<Maps, DriverError>,
) -> Result<(), DriverError> {
    place.1 = encode()?;
    place.0 = key;
    Ok(())
}

/// In the third of the words, behind what boxes say there.
const FEW_SHIFT: u32 = 40;

/// Boxes as words that are equal if and only if the boxes are. The first is 0 for none: a box has rows.
fn words(k: u32, format: Format, rows: [u32; WIDTHS_MAX], blocks: u32) -> [u64; 3] {
    // A box has at most 256 elements along each side.
    let [a, b, c, d, e] = rows.map(u64::from);
    [a | b << 16 | c << 32 | d << 48, e | u64::from(k) << 32, u64::from(blocks) | (format as u64) << 32]
}
