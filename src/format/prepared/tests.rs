//! The specification, read a second time: a reader after docs/formats.md that shares no code with the writer.

use half::{bf16, f16};
use proptest::prelude::*;

use super::*;
use crate::format::{ScaleLayout, e2m1, e4m3, e8m0};

/// What a kernel multiplies by: code and scale of row `r` (0 to 63) of a block and column `k` (0 to 63), as the 16-bit
/// numbers that the formulas of the specification make of the words.
fn factors(compute: Format, block: &[u8], r: usize, k: usize) -> [f64; 2] {
    let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
    let (w, g, high) = (r / 16, r % 8, r / 8 % 2);
    let (step, inside) = (k / 16, k % 16);
    let (c, second) = (inside % 8 / 2, inside / 8);
    let q = word(16 * (32 * w + 4 * g + c) + 4 * step);
    let scales = word(2048 + 8 * (8 * w + g) + 4 * (step / 2)).rotate_left(8 * (step as u32 % 2));
    let half = |pair: u32, half: usize| (pair >> (16 * half)) as u16;
    if compute == Format::F16 {
        let pair = [q << 9, q ^ (q >> 3), q ^ (q << 4), q ^ (q << 7)][2 * second + high] & 0x8E00_8E00;
        let scale = scales & 0x7F80_7F80;
        [half(pair, k % 2), half(scale, high)].map(|bits| f16::from_bits(bits).to_f64())
    } else {
        let pair = [q, q << 6, q.rotate_left(12), (q << 2) ^ (q >> 6)][2 * second + high] & 0x81C0_81C0;
        let scale = (scales & 0x0FF0_0FF0) | 0x7000_7000;
        [half(pair, k % 2), half(scale, high)].map(|bits| bf16::from_bits(bits).to_f64())
    }
}

/// What a kernel that multiplies in e4m3 multiplies by: row `r` of a block and column `k`, times the row's factor.
fn rounded(block: &[u8], r: usize, k: usize) -> f64 {
    let (w, g, high) = (r / 16, r % 8, r / 8 % 2);
    let (t, word, place) = (k / 16, k % 16 / 8, k % 8);
    let thread = 32 * w + 4 * g + t;
    let at = 16 * thread + 8 * high + 4 * word;
    let q = u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
    let folded = match block[2048 + 2 * thread + high] {
        0xFF => 0.0,
        0xFE => f32::NAN,
        small @ 0x80.. => (1.0 + f32::from((0xFD - small) % 8) / 8.0) * 2f32.powi(i32::from((0xFD - small) / 8) - 12),
        byte => e4m3::decode(byte),
    };
    let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][(q >> (4 * place) & 7) as usize];
    let signs = (if place < 4 { q } else { q << 4 }) & 0x8080_8080;
    let sign = if signs >> (8 * (place % 4) + 7) & 1 == 1 { -1.0 } else { 1.0 };
    f64::from(sign * e4m3::decode(e4m3::encode(magnitude * folded)))
}

/// The same of an expanded block, which has the bytes themselves.
fn expanded(block: &[u8], r: usize, k: usize) -> f64 {
    let (w, g, high) = (r / 16, r % 8, r / 8 % 2);
    let (t, step, four, place) = (k / 16, k % 16 / 8, k % 8 / 4, k % 4);
    f64::from(e4m3::decode(block[2048 * step + 16 * (32 * w + 4 * g + t) + 8 * four + 4 * high + place]))
}

/// The same of every element, `[block][row][k]`, with the factors of rows.
fn rounded_values(prepared: &Prepared) -> Vec<f64> {
    let layout = prepared.layout();
    let (n, products) = (layout.n() as usize, layout.products() as usize);
    let (block_bytes, value) = if layout.is_expanded() {
        (4096, expanded as fn(&[u8], usize, usize) -> f64)
    } else {
        (2304, rounded as fn(&[u8], usize, usize) -> f64)
    };
    let (blocks, factors) = prepared.bytes().split_at(layout.blocks() * block_bytes);
    let per_group = layout.tiles_per_group() * layout.blocks_per_tile();
    let mut values = Vec::new();
    for (at, block) in blocks.chunks_exact(block_bytes).enumerate() {
        let (group, tile) = (at as u32 / per_group, at as u32 % per_group / layout.blocks_per_tile());
        for (r, k) in (0..64).flat_map(|r| (0..64).map(move |k| (r, k))) {
            let factor = layout.source(tile, r as u32).map_or(1.0, |(product, row)| {
                let place = 4 * ((group as usize * products + product as usize) * n + row as usize);
                f32::from_le_bytes(factors[place..place + 4].try_into().unwrap())
            });
            values.push(value(block, r, k) * f64::from(factor));
        }
    }
    values
}

/// Code · scale of every element of every block, `[block][row][k]`.
fn values(prepared: &Prepared) -> Vec<f64> {
    let compute = prepared.layout().compute();
    if compute == Format::E4m3 {
        return rounded_values(prepared);
    }
    let mut values = Vec::new();
    for block in prepared.bytes().chunks_exact(2304) {
        for (r, k) in (0..64).flat_map(|r| (0..64).map(move |k| (r, k))) {
            let [code, scale] = factors(compute, block, r, k);
            let product = code * scale;
            let rounded = match compute {
                Format::F16 => f16::from_f64(product).to_f64(),
                _ => bf16::from_f64(product).to_f64(),
            };
            assert!(rounded == product || product.is_nan(), "{code:e} · {scale:e} is rounded");
            values.push(product * 2f64.powi(14));
        }
    }
    values
}

/// Operand of which byte i is a hash of i and the seed; scales from `scale`.
fn operand(groups: usize, n: usize, k: usize, layout: ScaleLayout, mut scale: impl FnMut() -> u8) -> Unpacked {
    let codes = (0..groups * n * k / 2).map(|i| (i as u32).wrapping_mul(0x9E37_79B9).to_be_bytes()[1]).collect();
    Unpacked { codes, scales: (0..groups * layout.bytes(n, k)).map(|_| scale()).collect() }
}

fn borrowed(operand: &Unpacked, layout: ScaleLayout) -> Nvfp4Weights<'_> {
    Nvfp4Weights { layout, ..operand.as_weights() }
}

/// code · scale of an element of `[groups, n, k]`.
fn value(operand: &Nvfp4Weights<'_>, (n, k): (usize, usize), group: usize, row: usize, col: usize) -> f64 {
    let pair = operand.codes[((group * n + row) * k + col) / 2];
    let scale = operand.scales[group * operand.layout.bytes(n, k) + operand.layout.offset(k, row, col / 16)];
    f64::from(e2m1::decode(pair >> (col % 2 * 4))) * f64::from(e4m3::decode(scale))
}

/// The same, as e4m3 has it.
fn rounded_value(operand: &Nvfp4Weights<'_>, (n, k): (usize, usize), group: usize, row: usize, col: usize) -> f64 {
    let scale_at = |block| operand.scales[group * operand.layout.bytes(n, k) + operand.layout.offset(k, row, block)];
    let finite = |scale: &f32| !scale.is_nan();
    let largest = (0..k / 16).map(|block| e4m3::decode(scale_at(block)).abs()).filter(finite).fold(0.0, f32::max);
    let least = (-40..40).find(|e| f64::from(largest) * 6.0 <= 448.0 * 2f64.powi(*e)).unwrap();
    let e = if largest == 0.0 { 0 } else { least };
    let code = operand.codes[((group * n + row) * k + col) / 2] >> (col % 2 * 4);
    f64::from(super::e4m3::e4m3_value(code & 15, scale_at(col / 16), e))
}

/// Checks every element of every block, padding included, against the operands.
fn check_values(prepared: &Prepared, operands: &[Nvfp4Weights<'_>]) {
    let layout = prepared.layout();
    let (n, k) = (layout.n() as usize, layout.k() as usize);
    let columns = 64 / operands.len();
    let (tiles, depths) = (n.div_ceil(columns), k / 64);
    let found = values(prepared);
    assert_eq!(found.len(), layout.groups() as usize * tiles * depths * 4096);
    for (at, found) in found.into_iter().enumerate() {
        let (block, r, col) = (at / 4096, at / 64 % 64, at % 64);
        let (group, tile, depth) = (block / depths / tiles, block / depths % tiles, block % depths);
        let (product, row) = match operands.len() {
            1 => (0, 64 * tile + r),
            _ => (r / 8 % 2, 32 * tile + r / 16 * 8 + r % 8),
        };
        let of = if layout.compute() == Format::E4m3 { rounded_value } else { value };
        let expected = if row < n { of(&operands[product], (n, k), group, row, 64 * depth + col) } else { 0.0 };
        let same = found == expected || (found.is_nan() && expected.is_nan());
        assert!(same, "{layout}: group {group}, tile {tile}, row {r}, k {}: {found}, not {expected}", 64 * depth + col);
    }
}

#[test]
fn every_code_with_every_scale_exactly() {
    // Row r has scale byte r (NaN, negative, zero and subnormal ones among them), and all sixteen codes under each.
    let code = |element: usize| ((element + element / 64) % 16) as u8;
    let codes = (0..256 * 32).map(|byte| code(2 * byte) | code(2 * byte + 1) << 4).collect();
    let operand = Unpacked { codes, scales: (0..256 * 4).map(|i| (i / 4) as u8).collect() };
    for compute in [Format::F16, Format::Bf16, Format::E4m3] {
        let layout = PreparedLayout::new(1, compute, 1, 256, 64).unwrap();
        let prepared = Prepared::pack(layout, &[operand.as_weights()]).unwrap();
        check_values(&prepared, &[operand.as_weights()]);
        let layout = PreparedLayout::new(2, compute, 1, 256, 64).unwrap();
        let prepared = Prepared::pack(layout, &[operand.as_weights(); 2]).unwrap();
        check_values(&prepared, &[operand.as_weights(); 2]);
    }
}

#[test]
fn words_are_a_bijection() {
    for coding in [Words::F16, Words::Bf16] {
        for codes in (0..1 << 20).map(|i: u32| i.wrapping_mul(0x9E37_79B9)) {
            assert_eq!(coding.decode(coding.encode(codes)), codes);
        }
        let sum = coding.encoder().iter().fold(0, |sum, word| sum ^ word);
        assert_eq!(sum, coding.encode(u32::MAX));
    }
}

/// One block of one operand, all zero but for a few codes (row, k, code) and scales (row, step, byte).
fn sparse(compute: Format, codes: &[(usize, usize, u8)], scales: &[(usize, usize, u8)]) -> Vec<u8> {
    let mut operand = Unpacked { codes: vec![0; 64 * 32], scales: vec![0; 64 * 4] };
    codes.iter().for_each(|&(row, k, code)| operand.codes[row * 32 + k / 2] |= code << (k % 2 * 4));
    scales.iter().for_each(|&(row, step, scale)| operand.scales[row * 4 + step] = scale);
    let layout = PreparedLayout::new(1, compute, 1, 64, 64).unwrap();
    Prepared::pack(layout, &[operand.as_weights()]).unwrap().into_bytes()
}

#[test]
fn known_bytes_of_code_words() {
    // Under scale 1.0 (0x38) for rows 0, 8 and 19. Bit 0 of a word appears in p0 alone, as m of the lower code.
    let one = [(0, 0, 0x38), (8, 0, 0x38), (0, 3, 0x38), (19, 1, 0x38)];
    let block = sparse(Format::F16, &[(0, 0, 1)], &one);
    assert_eq!(block[..16], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // Bit 22 of a word: the sign (bit 31) of the higher code of p0, and, over q ^ (q << 4), bit 26 of p2: its e0. So the
    // codes 8 at k = 1 and 2 at k = 9.
    let block = sparse(Format::F16, &[(0, 49, 8), (0, 57, 2)], &one);
    assert_eq!(block[12..16], [0, 0, 0x40, 0]);
    // Row 19 = 16·1 + 3, k = 16 + 4: thread 32 + 4·3 + 2 = 46, step 1.
    let block = sparse(Format::F16, &[(19, 20, 1)], &one);
    assert_eq!(block.iter().position(|&byte| byte == 1), Some(16 * 46 + 4));
    // bf16: bit 6 is m in p0 (bit 6) and e1 in p3 (by q << 2, bit 8).
    let block = sparse(Format::Bf16, &[(0, 0, 1), (8, 8, 4)], &one);
    assert_eq!(block[..4], [0x40, 0, 0, 0]);
}

#[test]
fn known_bytes_of_scale_words() {
    // 1.0 is 0x3C00 in binary16, so its E5M3 is 0x78; 448 = 1.75·2^8 is 0x5F00 and 0xBE; 2^-9 is 0x1800 and 0x30.
    let block = sparse(Format::F16, &[], &[(0, 0, 0x38)]);
    assert_eq!(block[2048..2056], [0x00, 0x3C, 0, 0, 0, 0, 0, 0]);
    let block = sparse(Format::F16, &[], &[(8, 2, 0x7E)]);
    assert_eq!(block[2048..2056], [0, 0, 0, 0, 0, 0, 0x00, 0x5F]);
    // An odd step is rotated right by 8: 0x00001800 becomes 0x00000018.
    let block = sparse(Format::F16, &[], &[(1, 1, 0x01)]);
    assert_eq!(block[2056..2060], [0x18, 0, 0, 0]);
    // bf16: once more by 3: 0x3C00 >> 3 = 0x0780.
    let block = sparse(Format::Bf16, &[], &[(63 - 8, 0, 0x38)]);
    assert_eq!(block[2048 + 31 * 8..], [0x80, 0x07, 0, 0, 0, 0, 0, 0]);
    // NaN is 0x7F80, with its sign or without.
    let block = sparse(Format::F16, &[], &[(0, 0, 0xFF), (8, 0, 0x7F)]);
    assert_eq!(block[2048..2052], [0x80, 0x7F, 0x80, 0x7F]);
}

#[test]
fn zero_and_negative_scales_change_the_codes() {
    let operand = Unpacked {
        codes: [vec![0x97; 8], vec![0x97; 24]].concat().repeat(64),
        scales: [0x80, 0xB8, 0xFF, 0x38].repeat(64),
    };
    let prepared = Prepared::pack(PreparedLayout::new(1, Format::Bf16, 1, 64, 64).unwrap(), &[operand.as_weights()]);
    let unpacked = prepared.unwrap().unpack().unwrap().remove(0);
    assert_eq!(unpacked.scales[..4], [0, 0x38, 0x7F, 0x38]);
    assert_eq!(unpacked.codes[..32], [[0; 8], [0x1F; 8], [0x1F; 8], [0x97; 8]].concat());
}

#[test]
fn sizes_are_padded_to_whole_tiles() {
    let layout = |products, groups, n, k| PreparedLayout::new(products, Format::F16, groups, n, k).unwrap();
    assert_eq!((layout(1, 1, 272, 448).tiles_per_group(), layout(2, 1, 272, 448).tiles_per_group()), (5, 9));
    assert_eq!(layout(1, 3, 272, 448).bytes(), 3 * 5 * 7 * 2304);
    assert_eq!(layout(1, 3, 272, 448).weights(Format::Mxfp4).unwrap().bytes(), 3 * 5 * 7 * 2176);
    assert_eq!(layout(2, 8, 4096, 7168).bytes(), 2 * 8 * 4096 * 7168 / 16 * 9);
    assert_eq!(layout(1, 1, 16, 64).source(0, 15), Some((0, 15)));
    assert_eq!(layout(1, 1, 16, 64).source(0, 16), None);
    assert_eq!(layout(2, 1, 48, 64).source(1, 16 + 8 + 3), Some((1, 32 + 8 + 3)));
    assert_eq!(layout(2, 1, 48, 64).source(1, 32), None);
}

#[test]
fn what_no_kernel_reads_is_refused() {
    let refusal = |products, compute, groups, n, k| {
        let error = PreparedLayout::new(products, compute, groups, n, k).unwrap_err();
        assert!(error.is_unsupported());
        error.to_string()
    };
    assert_eq!(refusal(3, Format::F16, 1, 64, 64), "3 products: weights are prepared for 1 or 2");
    assert_eq!(refusal(1, Format::F32, 1, 64, 64), "weights are prepared for f16, bf16 or e4m3, not for f32");
    assert_eq!(refusal(1, Format::F16, 0, 64, 64), "0 groups: at least 1 is needed");
    assert_eq!(refusal(1, Format::F16, 1, 40, 64), "n = 40: must be a positive multiple of 16");
    assert_eq!(refusal(1, Format::F16, 1, 64, 0), "k = 0: must be a positive multiple of 64");
    let huge = refusal(1, Format::F16, u32::MAX, 1 << 31, 1 << 31);
    assert!(huge.contains("takes more than the") && huge.contains("n2147483648"), "{huge}");
}

#[test]
fn factors_of_rows_that_were_never_prepared_are_refused() {
    let layout = PreparedLayout::new(1, Format::E4m3, 1, 64, 64).unwrap();
    assert_eq!((layout.bytes(), layout.row_factors()), (2304 + 256, 64));
    let good = operand(1, 64, 64, ScaleLayout::Linear, || 0x38);
    let bytes = Prepared::pack(layout, &[good.as_weights()]).unwrap().into_bytes();
    let refusal = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        let error = Prepared::from_bytes(layout, bytes).unwrap().unpack().unwrap_err();
        assert!(error.is_data());
        error.to_string()
    };
    assert_eq!(refusal(2304 + 2, 0xFF), "0.03112793 is no factor of a row of prepared weights");
    assert_eq!(refusal(2048 + 2 * 5 + 1, 0x80), "0x80 is no scale of prepared weights (operand 1, group 0, row 9)");
}

#[test]
fn the_spelling_carries_the_version() {
    let layout = PreparedLayout::new(2, Format::Bf16, 8, 4096, 7168).unwrap();
    assert_eq!(layout.to_string(), "prepared1.dual.bf16:g8:n4096:k7168");
    assert_eq!(layout.to_string().parse::<PreparedLayout>().unwrap(), layout);
    let error = "prepared2.dual.bf16:g8:n4096:k7168".parse::<PreparedLayout>().unwrap_err();
    assert!(error.is_unsupported());
    let words = "prepared layout `prepared2.dual.bf16:g8:n4096:k7168`: layout version 2: only version 1 is known here";
    assert_eq!(error.to_string(), words);
    for text in [
        "",
        "prepared.dual.f16:g1:n64:k64",
        "prepared1.triple.f16:g1:n64:k64",
        "prepared1.dual.f16:g1:n64",
        "prepared1.dual.f16:g1:n64:k64:",
        "prepared1.dual.f16:g01:n64:k64",
        "prepared1.dual.f16:g+1:n64:k64",
    ] {
        assert!(text.parse::<PreparedLayout>().unwrap_err().is_parse(), "{text}");
    }
}

#[test]
fn wrong_lengths_are_refused_with_both_numbers() {
    let layout = PreparedLayout::new(2, Format::F16, 3, 48, 64).unwrap();
    let good = operand(3, 48, 64, ScaleLayout::Swizzled128x4, || 0x38);
    let view = borrowed(&good, ScaleLayout::Swizzled128x4);
    let refusal = |operands: &[Nvfp4Weights<'_>]| {
        let error = Prepared::pack(layout, operands).unwrap_err();
        assert!(error.is_data());
        error.to_string()
    };
    assert_eq!(refusal(&[view]), "prepared1.dual.f16:g3:n48:k64 is made of 2 operands, found 1");
    let short = Nvfp4Weights { codes: &good.codes[1..], ..view };
    assert_eq!(refusal(&[view, short]), "operand 2: 3×48×64 has 4608 bytes of e2m1 codes, found 4607");
    let linear = Nvfp4Weights { layout: ScaleLayout::Linear, ..view };
    assert_eq!(refusal(&[linear, view]), "operand 1: 3×48×64 has 576 bytes of linear scales, found 1536");
    let error = Prepared::from_bytes(layout, vec![0; 5]).unwrap_err();
    assert_eq!(error.to_string(), "prepared1.dual.f16:g3:n48:k64 has 13824 bytes, found 5");
}

#[test]
fn bytes_that_were_never_prepared_are_refused() {
    let layout = PreparedLayout::new(1, Format::F16, 1, 64, 64).unwrap();
    let mut bytes = vec![0; layout.bytes()];
    bytes[2048] = 0x80; // E5M3 0x01 in the low row of step 0: 2^-15 + …, which e4m3 has not.
    let error = Prepared::from_bytes(layout, bytes).unwrap().unpack().unwrap_err();
    assert!(error.is_data());
    assert_eq!(error.to_string(), "0x01 is no scale of prepared weights (operand 1, group 0, row 0)");
}

/// The factors of MXFP4, read after the specification: a code as it is, and its power of two.
fn mxfp4_factors(compute: Format, block: &[u8], r: usize, k: usize) -> [f64; 2] {
    let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
    let (w, g, high) = (r / 16, r % 8, r / 8 % 2);
    // The codes lie as they do of NVFP4, whose code words these blocks begin with: 2^-14 or 2^-126 of them.
    let mut with_scales = block[..2048].to_vec();
    with_scales.resize(2304, 0);
    let unit = if compute == Format::F16 { 14 } else { 126 };
    let code = factors(compute, &with_scales, r, k)[0] * 2f64.powi(unit);
    let scales = word(2048 + 4 * (8 * w + g)).rotate_left(8 * (k / 32) as u32);
    let exponent = (scales >> (16 * high) & 0x7F80) >> 7;
    [code, if exponent == 255 { f64::INFINITY } else { 2f64.powi(exponent as i32 - 127) }]
}

fn mxfp4_values(prepared: &Prepared) -> Vec<f64> {
    let compute = prepared.layout().compute();
    let of_block = |block: &[u8]| {
        let places = (0..64).flat_map(|r| (0..64).map(move |k| (r, k)));
        places.map(|(r, k)| mxfp4_factors(compute, block, r, k).iter().product()).collect::<Vec<f64>>()
    };
    prepared.bytes().chunks_exact(2176).flat_map(of_block).collect()
}

#[test]
fn every_code_with_every_power_of_two_exactly() {
    // Row r has the scales r and 255 − r, and all sixteen codes under each.
    let code = |element: usize| ((element + element / 64) % 16) as u8;
    let codes: Vec<u8> = (0..256 * 32).map(|byte| code(2 * byte) | code(2 * byte + 1) << 4).collect();
    let scales: Vec<u8> = (0..256u32).flat_map(|row| [row as u8, 255 - row as u8]).collect();
    let weights = Mxfp4Weights { codes: &codes, scales: &scales };
    for (compute, products) in [(Format::F16, 1), (Format::Bf16, 1), (Format::F16, 2), (Format::Bf16, 2)] {
        let layout = PreparedLayout::new(products, compute, 1, 256, 64).unwrap().weights(Format::Mxfp4).unwrap();
        let prepared = Prepared::pack_mxfp4(layout, &[weights, weights][..products as usize]).unwrap();
        assert_eq!(prepared.bytes().len(), products as usize * 4 * 2176);
        let found = mxfp4_values(&prepared);
        for (at, found) in found.iter().enumerate() {
            let (tile, r, k) = (at / 4096, at / 64 % 64, at % 64);
            let (_, row) = layout.source(tile as u32, r as u32).unwrap();
            let (code, scale) = (code(row as usize * 64 + k), scales[2 * row as usize + k / 32]);
            let expected = f64::from(e2m1::decode(code)) * f64::from(e8m0::decode(scale));
            assert!(*found == expected || (found.is_nan() && expected.is_nan()), "{layout}: {at}: {found}, {expected}");
        }
        // There and back, but for codes under NaN.
        let back = prepared.unpack().unwrap().remove(0);
        assert_eq!(back.scales, scales);
        for (at, (found, given)) in back.codes.iter().zip(&codes).enumerate() {
            assert_eq!(*found, if scales[at / 16] == 255 { 0 } else { *given }, "{at}");
        }
        assert_eq!(Prepared::pack_mxfp4(layout, &vec![back.as_mxfp4(); products as usize]).unwrap(), prepared);
    }
}

#[test]
fn known_bytes_of_powers_of_two() {
    let mut scales = [0; 128];
    // Row 0: 2^0 and 2^3; row 8: 2^-127 and NaN; row 63: the largest.
    (scales[0], scales[1], scales[17], scales[126]) = (127, 130, 255, 254);
    let weights = Mxfp4Weights { codes: &[0x21; 64 * 32], scales: &scales };
    for compute in [Format::F16, Format::Bf16] {
        let layout = PreparedLayout::new(1, compute, 1, 64, 64).unwrap().weights(Format::Mxfp4).unwrap();
        let prepared = Prepared::pack_mxfp4(layout, &[weights]).unwrap();
        let block = prepared.bytes();
        // 127 << 7 is 0x3F80; 130 << 7 and 255 << 23, rotated right by 8: 0x7F804100 becomes 0x007F8041.
        assert_eq!(block[2048..2052], (0x0000_3F80u32 | 0x007F_8041).to_le_bytes());
        assert_eq!(block[2048 + 31 * 4..], (254u32 << 23).to_le_bytes());
        assert_eq!(prepared.unpack().unwrap()[0].codes[8 * 32 + 16..8 * 32 + 32], [0; 16]);
    }
}

#[test]
fn formats_are_told_apart() {
    let layout = PreparedLayout::new(1, Format::Bf16, 2, 64, 128).unwrap();
    let mxfp4 = layout.weights(Format::Mxfp4).unwrap();
    assert_eq!((mxfp4.to_string().as_str(), mxfp4.block_bytes()), ("prepared1.single.bf16:g2:n64:k128:mxfp4", 2176));
    assert_eq!("prepared1.single.bf16:g2:n64:k128:mxfp4".parse::<PreparedLayout>().unwrap(), mxfp4);
    assert_eq!((mxfp4.bytes(), layout.bytes()), (2 * 2 * 2176, 2 * 2 * 2304));
    assert!(layout.weights(Format::F16).unwrap_err().is_unsupported());
    for text in ["prepared1.single.bf16:g2:n64:k128:nvfp4", "prepared1.single.bf16:g2:n64:k128:mxfp4:mxfp4"] {
        assert!(text.parse::<PreparedLayout>().unwrap_err().is_parse(), "{text}");
    }
    let (codes, scales) = (vec![0; 2 * 64 * 64], vec![0; 2 * 64 * 4]);
    let weights = Mxfp4Weights { codes: &codes, scales: &scales };
    let error = Prepared::pack_mxfp4(layout, &[weights]).unwrap_err();
    assert!(error.is_data() && error.to_string().ends_with("is made of nvfp4 operands, these are mxfp4"), "{error}");
    let short = Mxfp4Weights { scales: &scales[1..], ..weights };
    let error = Prepared::pack_mxfp4(mxfp4, &[short]).unwrap_err().to_string();
    assert_eq!(error, "operand 1: 2×64×128 has 512 bytes of e8m0 scales, found 511");
}

#[test]
fn expanded_weights_are_said_to_be_so() {
    let layout = PreparedLayout::new(2, Format::E4m3, 3, 48, 128).unwrap();
    let expanded = layout.expanded().unwrap();
    assert_eq!((layout.is_expanded(), expanded.is_expanded()), (false, true));
    assert_eq!(expanded.to_string(), "prepared1.dual.e4m3:g3:n48:k128:expanded");
    assert_eq!(expanded.to_string().parse::<PreparedLayout>().unwrap(), expanded);
    assert_eq!((expanded.block_bytes(), expanded.bytes()), (4096, 3 * 2 * 2 * 4096 + 4 * 3 * 2 * 48));
    assert_eq!(expanded.row_factors(), layout.row_factors());
    assert!(expanded.weights(Format::Mxfp4).unwrap_err().is_unsupported());
    let error = PreparedLayout::new(1, Format::F16, 1, 64, 64).unwrap().expanded().unwrap_err();
    assert_eq!(error.to_string(), "weights are expanded for e4m3, not for f16");
    assert!("prepared1.dual.f16:g1:n64:k64:expanded".parse::<PreparedLayout>().unwrap_err().is_unsupported());
    // As many bytes as can be counted of packed weights, and more of these.
    let (n, k) = (1 << 31, (1u32 << 31) - 64);
    let most = (1..).take_while(|groups| PreparedLayout::new(1, Format::E4m3, *groups, n, k).is_ok()).last().unwrap();
    let error = PreparedLayout::new(1, Format::E4m3, most, n, k).unwrap().expanded().unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("takes more than the"), "{error}");
    let operand = operand(1, 64, 64, ScaleLayout::Linear, || 0x38);
    let layout = PreparedLayout::new(1, Format::E4m3, 1, 64, 64).unwrap().expanded().unwrap();
    let error = Prepared::pack(layout, &[operand.as_weights()]).unwrap().unpack().unwrap_err();
    assert!(
        error.is_unsupported() && error.to_string().ends_with("has values, not the codes and scales that they were"),
        "{error}"
    );
}

/// Bytes by hand: row 0 of the gate has codes 1, 2, … of the first block scale, and the row's largest is another.
#[test]
fn known_bytes_of_expanded_weights() {
    let mut gate = Unpacked { codes: vec![0; 64 * 32], scales: vec![0x38; 64 * 4] };
    gate.codes[..4].copy_from_slice(&[0x21, 0x43, 0xFD, 0x0F]);
    // 448: 6 · 448 · 2^-3 = 336.
    gate.scales[3] = 0x7E;
    let up = Unpacked { codes: vec![0x22; 64 * 32], scales: vec![0x38; 64 * 4] };
    let layout = PreparedLayout::new(2, Format::E4m3, 1, 64, 64).unwrap().expanded().unwrap();
    let prepared = Prepared::pack(layout, &[gate.as_weights(), up.as_weights()]).unwrap();
    // Of 2^-3: 1/16, 1/8, 3/16, 1/4; then -3/8, -3/4, -3/4, 0. Of up, where 6 · 2^6 = 384, 64 each.
    let first = [0x18, 0x20, 0x24, 0x28, 0x68, 0x68, 0x68, 0x68, 0xAC, 0xB4, 0xB4, 0x00, 0x68, 0x68, 0x68, 0x68];
    assert_eq!(prepared.bytes()[..16], first);
    let factors = &prepared.bytes()[layout.factors_offset()..];
    assert_eq!(
        (factors[..4].to_vec(), factors[4..8].to_vec()),
        (8f32.to_le_bytes().to_vec(), 2f32.powi(-6).to_le_bytes().to_vec())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn there_and_back(
        products in 1usize..3, compute in 0usize..3, groups in 1usize..4, n in 1usize..20, k in 1usize..4, swizzled: bool,
        usual: bool, mut seed: u64,
    ) {
        let (n, k) = (16 * n, 64 * k);
        let compute = [Format::F16, Format::Bf16, Format::E4m3][compute];
        let scales = if swizzled { ScaleLayout::Swizzled128x4 } else { ScaleLayout::Linear };
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let byte = (seed >> 56) as u8;
            // Usual scales: neither zero nor negative.
            if usual { byte % 0x7F + 1 } else { byte }
        };
        let operands: Vec<_> = (0..products).map(|_| operand(groups, n, k, scales, &mut random)).collect();
        let views: Vec<_> = operands.iter().map(|operand| borrowed(operand, scales)).collect();
        let layout = PreparedLayout::new(products as u32, compute, groups as u32, n as u32, k as u32).unwrap();
        let prepared = Prepared::pack(layout, &views).unwrap();
        check_values(&prepared, &views);

        if compute == Format::E4m3 {
            check_values(&Prepared::pack(layout.expanded().unwrap(), &views).unwrap(), &views);
        }
        let back = prepared.unpack().unwrap();
        for (back, view) in back.iter().zip(&views) {
            let back = back.as_weights();
            for (group, row, col) in (0..groups * n * k).map(|at| (at / k / n, at / k % n, at % k)) {
                let (found, expected) = (value(&back, (n, k), group, row, col), value(view, (n, k), group, row, col));
                prop_assert!(found == expected || (found.is_nan() && expected.is_nan()));
            }
            if usual {
                prop_assert_eq!(back.codes, view.codes);
                let group = scales.bytes(n, k);
                let linear = (0..groups).flat_map(|at| {
                    scales.convert(&view.scales[at * group..][..group], n, k, ScaleLayout::Linear, 0).unwrap()
                });
                prop_assert_eq!(back.scales.to_vec(), linear.collect::<Vec<_>>());
            }
        }
        // What came back is prepared to the same bytes, whatever it was made of.
        let views: Vec<_> = back.iter().map(Unpacked::as_weights).collect();
        prop_assert_eq!(Prepared::pack(layout, &views).unwrap(), prepared);
    }
}
