//! Operands of one launch on the host: what is uploaded, and what the oracle computes from.

use std::array;
use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;

use half::{bf16, f16};

use crate::cores::cores;
use crate::oracle::{self, Coding, Leaving, Matrix, Products, Reference, Scaling, joined};
use warpsmith::format::{E4m3Tensor, Format, Mxfp4Weights, Nvfp4Weights, Prepared, ScaleLayout};
use warpsmith::internal::format::{BLOCK, MX_BLOCK, e2m1, e4m3, e4m3_value, mxfp4_value, row_exponent};
use warpsmith::internal::{Raise, crew};
use warpsmith::spec::{Operation, Problem};
use warpsmith::{Error, Result};

/// A matrix operand: `[rows, K]` row-major, or `[groups, rows, K]`.
#[derive(Clone, Debug, PartialEq)]
pub enum HostMatrix {
    /// e2m1 codes `[…, K/2]` (low nibble = even k), and e4m3 block scales in the problem's layout, group after group.
    Nvfp4 {
        /// Two codes a byte.
        codes: Vec<u8>,
        /// One scale for 16 elements.
        scales: Vec<u8>,
    },
    /// e2m1 codes `[…, K/2]` (low nibble = even k), and e8m0 block scales `[…, K/32]`.
    Mxfp4 {
        /// Two codes a byte.
        codes: Vec<u8>,
        /// One scale for 32 elements.
        scales: Vec<u8>,
    },
    /// e4m3 values in the order of kernels, and factors of rows: tokens.
    E4m3 {
        /// One byte a value.
        values: Vec<u8>,
        /// One factor a row, or for each row and 128 of K.
        factors: Vec<f32>,
    },
    /// Values.
    F16(Vec<f16>),
    /// Values.
    Bf16(Vec<bf16>),
}

/// The size of a matrix operand: rows of one group, where its scales lie, and what it is multiplied in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How block scales lie.
    pub layout: ScaleLayout,
    /// The format that codes become, which of MXFP4 decides what is within the range; NVFP4 weights are rounded to e4m3.
    pub compute: Format,
    /// Rows of one group.
    pub rows: usize,
    /// Columns.
    pub k: usize,
    /// Factors of a row of e4m3 tokens.
    pub factors: usize,
}

impl Shape {
    /// Of an operand of a problem with so many rows.
    #[must_use]
    pub fn of(problem: &Problem, rows: u32) -> Self {
        let (layout, compute) = (problem.scale_layout(), problem.compute_format());
        let k = problem.depth() as usize;
        let factors = E4m3Tensor::row_factors(k, problem.has_k_factors());
        Self { layout, compute, rows: rows as usize, k, factors }
    }
}

impl HostMatrix {
    /// Its format.
    #[must_use]
    pub fn format(&self) -> Format {
        match self {
            HostMatrix::Nvfp4 { .. } => Format::Nvfp4,
            HostMatrix::Mxfp4 { .. } => Format::Mxfp4,
            HostMatrix::E4m3 { .. } => Format::E4m3,
            HostMatrix::F16(_) => Format::F16,
            HostMatrix::Bf16(_) => Format::Bf16,
        }
    }

    /// The exact values of one row, code × block scale for NVFP4, without any tensor scale; for MXFP4, and where products are
    /// those of e4m3 values, what that is in the format that is multiplied in; of e4m3 tokens without factors.
    ///
    /// # Panics
    /// If the matrix is smaller than `shape` says; [`HostOperands::check`] tells.
    pub fn decode_row(&self, shape: Shape, group: usize, row: usize, out: &mut [f32]) {
        let Shape { layout, compute, rows, k, .. } = shape;
        let first = (group * rows + row) * k;
        match self {
            HostMatrix::E4m3 { values, .. } => {
                for (k, out) in out.iter_mut().enumerate() {
                    *out = e4m3::decode(values[first + E4m3Tensor::position(k)]);
                }
            }
            HostMatrix::F16(values) => {
                out.iter_mut().zip(&values[first..first + k]).for_each(|(out, value)| *out = value.to_f32());
            }
            HostMatrix::Bf16(values) => {
                out.iter_mut().zip(&values[first..first + k]).for_each(|(out, value)| *out = value.to_f32());
            }
            HostMatrix::Nvfp4 { codes, scales } => {
                let scales = &scales[group * layout.bytes(rows, k)..];
                let codes = &codes[first / 2..(first + k) / 2];
                if compute == Format::E4m3 {
                    let scale = |block| scales[layout.offset(k, row, block)];
                    let exponent = row_exponent((0..k / BLOCK).map(scale));
                    let values = e4m3_values(exponent);
                    let blocks = out.chunks_exact_mut(BLOCK).zip(codes.chunks_exact(BLOCK / 2));
                    for (block, (out, codes)) in blocks.enumerate() {
                        let of = &values[usize::from(scale(block))];
                        for (pair, code) in out.chunks_exact_mut(2).zip(codes) {
                            pair[0] = of[usize::from(code & 15)];
                            pair[1] = of[usize::from(code >> 4)];
                        }
                    }
                    return;
                }
                for (block, (out, codes)) in out.chunks_exact_mut(BLOCK).zip(codes.chunks_exact(BLOCK / 2)).enumerate()
                {
                    let scale = e4m3::decode(scales[layout.offset(k, row, block)]);
                    for (pair, code) in out.chunks_exact_mut(2).zip(codes) {
                        pair[0] = scale * e2m1::decode(code & 15);
                        pair[1] = scale * e2m1::decode(code >> 4);
                    }
                }
            }
            HostMatrix::Mxfp4 { codes, scales } => {
                let blocks = codes[first / 2..(first + k) / 2].chunks(MX_BLOCK / 2).zip(&scales[first / MX_BLOCK..]);
                for (out, (codes, scale)) in out.chunks_mut(MX_BLOCK).zip(blocks) {
                    for (pair, code) in out.chunks_mut(2).zip(codes) {
                        pair[0] = mxfp4_value(compute, code & 15, *scale);
                        pair[1] = mxfp4_value(compute, code >> 4, *scale);
                    }
                }
            }
        }
    }

    fn decode(&self, shape: Shape, group: usize, rows: impl Iterator<Item = Option<usize>>) -> Result<Matrix<'static>> {
        let mut values = Vec::new();
        for row in rows {
            let first = values.len();
            values.resize(first + shape.k, 0.0);
            if let Some(row) = row {
                self.decode_row(shape, group, row, &mut values[first..]);
            }
        }
        Matrix::new(values.len() / shape.k, shape.k, values)
    }

    fn check(&self, what: &str, format: Format, groups: usize, shape: Shape) -> Result<()> {
        if self.format() != format {
            return Err(Error::data(format!("{what} is in {}, the problem has it in {format}", self.format())));
        }
        let elements = groups * shape.rows * shape.k;
        let (found, needed) = match self {
            HostMatrix::F16(values) => (values.len(), elements),
            HostMatrix::Bf16(values) => (values.len(), elements),
            HostMatrix::E4m3 { values, .. } => (values.len(), elements),
            HostMatrix::Nvfp4 { codes, .. } | HostMatrix::Mxfp4 { codes, .. } => (codes.len(), elements / 2),
        };
        if found != needed {
            return Err(Error::data(format!("{what} has {found} values or pairs of codes, {needed} are needed")));
        }
        match self {
            HostMatrix::Nvfp4 { scales, .. } | HostMatrix::Mxfp4 { scales, .. } => {
                let needed = groups * format.scale_bytes(shape.layout, shape.rows, shape.k);
                if scales.len() == needed {
                    return Ok(());
                }
                Err(Error::data(format!("{what} has {} scales, {needed} are needed", scales.len())))
            }
            HostMatrix::E4m3 { factors, .. } => {
                let (found, needed) = (factors.len(), groups * shape.rows * shape.factors);
                if found == needed {
                    return Ok(());
                }
                Err(Error::data(format!("{what} has {found} factors of rows, {needed} are needed")))
            }
            _ => Ok(()),
        }
    }
}

/// The operands of one launch.
#[derive(Clone, Debug, PartialEq)]
pub struct HostOperands {
    /// What is computed from them.
    pub problem: Problem,
    /// Rows of A, of all groups together.
    pub m: u32,
    /// Where each group begins, and the end of the last: G + 1 rows, ascending from 0 to m. When grouped.
    pub offsets: Option<Vec<i32>>,
    /// A `[m, K]`.
    pub a: HostMatrix,
    /// B, or B1 and B2: `[N, K]` or `[G, N, K]`.
    pub b: Vec<HostMatrix>,
    /// α of each product: one number, or one a group.
    pub alpha: Vec<Vec<f32>>,
    /// The factor of C in NVFP4: one number, or one a group; none, where C is in another format.
    pub c_factor: Vec<f32>,
    /// What columns have of their own.
    pub columns: HostColumns,
    /// Where rows come from, and where they go.
    pub rows: HostRows,
}

/// What columns have of their own, for each product `[N]` or `[G, N]`; none, where the problem has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostColumns {
    /// Factors of the rows of B.
    pub row_scale: Vec<Vec<f32>>,
    /// What is added: values of the problem's format for it.
    pub bias: Vec<Vec<f32>>,
}

/// Where rows come from, and where they go; nothing, where the problem says nothing of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostRows {
    /// Rows of A, and for each of the m rows which of them it is; a number that A has not stands for a row of zeros.
    pub gathered: Option<(u32, Vec<i32>)>,
    /// Rows of C, and for each of the m rows which of them it becomes; a number that C has not, for none.
    pub slots: Option<(u32, Vec<i32>)>,
    /// A factor for each of the m rows that are put.
    pub factors: Option<Vec<f32>>,
}

/// What each code stands for under each block scale in a row with this exponent, `[scale][code]`: [`e4m3_value`], made once.
pub(crate) fn e4m3_values(exponent: i32) -> &'static [[f32; 16]; 256] {
    // Of every exponent that a row can have.
    static MADE: [OnceLock<Box<[[f32; 16]; 256]>>; 19] = [const { OnceLock::new() }; 19];
    MADE[(exponent + 15) as usize].get_or_init(|| {
        let of = |scale: usize| array::from_fn(|code| e4m3_value(code as u8, scale as u8, exponent));
        Box::new(array::from_fn(of))
    })
}

/// The number, if it is one of so many rows.
fn within(number: i32, rows: u32) -> Option<usize> {
    usize::try_from(number).ok().filter(|number| *number < rows as usize)
}

impl HostRows {
    fn check(&self, problem: &Problem, m: u32) -> Result<()> {
        let is_there = |what, has: bool, length: Option<usize>| match (has, length) {
            (true, Some(length)) if length == m as usize => Ok(()),
            (false, None) => Ok(()),
            (has, length) => Err(Error::data(format!(
                "{what} has {} numbers, {} are needed",
                length.unwrap_or(0),
                if has { m } else { 0 }
            ))),
        };
        let length = |list: &Option<(u32, Vec<i32>)>| list.as_ref().map(|(_, numbers)| numbers.len());
        is_there("rows", problem.is_gathered(), length(&self.gathered))?;
        is_there("slots", problem.has_slots(), length(&self.slots))?;
        if let Some(factors) = &self.factors {
            is_there("slot_factors", problem.has_slots(), Some(factors.len()))?;
        }
        let Some((rows, slots)) = &self.slots else { return Ok(()) };
        let mut taken = vec![false; *rows as usize];
        match slots
            .iter()
            .filter_map(|slot| within(*slot, *rows))
            .find(|slot| std::mem::replace(&mut taken[*slot], true))
        {
            Some(slot) => Err(Error::data(format!("slot {slot} is taken twice"))),
            None => Ok(()),
        }
    }
}

impl HostOperands {
    /// Which row of A each of some rows is; none for a row of zeros.
    pub fn rows_of_a(&self, rows: Range<usize>) -> impl Iterator<Item = Option<usize>> {
        rows.map(|row| match &self.rows.gathered {
            Some((of, numbers)) => within(numbers[row], *of),
            None => Some(row),
        })
    }

    /// Rows that C has.
    #[must_use]
    pub fn c_rows(&self) -> u32 {
        self.rows.slots.as_ref().map_or(self.m, |(rows, _)| *rows)
    }

    /// The reference of all rows, put where they belong.
    ///
    /// # Errors
    /// Data, if it is not of so many rows.
    pub fn placed(&self, reference: Reference) -> Result<Reference> {
        let Some((rows, slots)) = &self.rows.slots else { return Ok(reference) };
        if reference.m() != slots.len() {
            return Err(Error::data(format!("{} rows for {} slots", reference.m(), slots.len())));
        }
        let mut of = vec![None; *rows as usize];
        for (row, slot) in slots.iter().enumerate() {
            if let Some(slot) = within(*slot, *rows) {
                of[slot] = Some(row);
            }
        }
        Ok(reference.of_rows(&of))
    }

    /// The rows of every group, in order; one group if the problem has none.
    #[must_use]
    pub fn groups(&self) -> Vec<Range<usize>> {
        match &self.offsets {
            None => std::iter::once(0..self.m as usize).collect(),
            Some(offsets) => offsets.windows(2).map(|pair| pair[0] as usize..pair[1] as usize).collect(),
        }
    }

    /// α of a product for a group.
    #[must_use]
    pub fn alpha_of(&self, product: usize, group: usize) -> f32 {
        let alpha = &self.alpha[product];
        if alpha.len() == 1 { alpha[0] } else { alpha[group] }
    }

    /// What is done to the products of a B before the activation, in some columns of a group.
    fn scaling(&self, product: usize, group: usize, columns: &[usize]) -> [Option<Vec<f32>>; 2] {
        let n = self.problem.columns() as usize;
        [&self.columns.row_scale, &self.columns.bias].map(|of| {
            let values = of.get(product)?;
            let first = if values.len() > n { group * n } else { 0 };
            Some(columns.iter().map(|column| values[first + column]).collect())
        })
    }

    /// The shape of A.
    #[must_use]
    pub fn a_shape(&self) -> Shape {
        self.shape(self.rows.gathered.as_ref().map_or(self.m, |(rows, _)| *rows))
    }

    /// The shape of every B.
    #[must_use]
    pub fn b_shape(&self) -> Shape {
        self.shape(self.problem.columns())
    }

    fn shape(&self, rows: u32) -> Shape {
        Shape::of(&self.problem, rows)
    }

    /// B as prepared weights, if the problem takes them so.
    ///
    /// # Errors
    /// Unsupported or data, if they cannot be prepared.
    pub fn prepare(&self) -> Result<Option<Prepared>> {
        if !self.problem.is_prepared() {
            return Ok(None);
        }
        let layout = self.problem.scale_layout();
        let (mut nvfp4, mut mxfp4) = (Vec::new(), Vec::new());
        for b in &self.b {
            match b {
                HostMatrix::Nvfp4 { codes, scales } => nvfp4.push(Nvfp4Weights { codes, scales, layout }),
                HostMatrix::Mxfp4 { codes, scales } => mxfp4.push(Mxfp4Weights { codes, scales }),
                _ => return Err(Error::data(format!("B is in {}, only nvfp4 and mxfp4 are prepared", b.format()))),
            }
        }
        let layout = self.problem.prepared_layout()?;
        match self.problem.b_format() {
            Format::Mxfp4 => Prepared::pack_mxfp4(layout, &mxfp4),
            _ => Prepared::pack(layout, &nvfp4),
        }
        .map(Some)
    }

    /// Whether formats, lengths and offsets are those of the problem.
    ///
    /// # Errors
    /// Those of [`Problem::check`]; data, naming the operand with what it has and what it needs.
    pub fn check(&self) -> Result<()> {
        let problem = &self.problem;
        problem.check()?;
        let groups = problem.groups().unwrap_or(1) as usize;
        let products = problem.operation().products() as usize;
        if self.b.len() != products || self.alpha.len() != products {
            return Err(Error::data(format!("{problem} has {products} B and α, found {}", self.b.len())));
        }
        self.rows.check(problem, self.m)?;
        self.a.check("A", problem.a_format(), 1, self.a_shape())?;
        for b in &self.b {
            b.check("B", problem.b_format(), groups, self.b_shape())?;
        }
        if let Some(alpha) = self.alpha.iter().find(|alpha| alpha.len() != 1 && alpha.len() != groups) {
            return Err(Error::data(format!("α has {} values, 1 or {groups} are needed", alpha.len())));
        }
        let found = self.c_factor.len();
        match problem.c_format() == Format::Nvfp4 {
            true if found != 1 && found != groups => {
                return Err(Error::data(format!("c_factor has {found} values, 1 or {groups} are needed")));
            }
            false if found != 0 => return Err(Error::data(format!("c_factor has {found} values, {problem} has none"))),
            _ => {}
        }
        let n = problem.columns() as usize;
        let bias = problem.bias_format().is_some();
        let columns =
            [("row_scale", problem.has_row_scale(), &self.columns.row_scale), ("bias", bias, &self.columns.bias)];
        for (name, is_there, found) in columns {
            let needed = if is_there { products } else { 0 };
            if found.len() != needed || found.iter().any(|values| values.len() != n && values.len() != groups * n) {
                let lengths: Vec<_> = found.iter().map(Vec::len).collect();
                return Err(Error::data(format!(
                    "{name} has {lengths:?} values, {needed} times {n} or {} are needed",
                    groups * n
                )));
            }
        }
        match (&self.offsets, problem.groups()) {
            (None, None) => Ok(()),
            (Some(offsets), Some(_)) => check_offsets(offsets, groups, self.m),
            (Some(_), None) => Err(Error::data(format!("{problem} has no groups, but offsets are given"))),
            (None, Some(_)) => Err(Error::data(format!("{problem} needs offsets"))),
        }
    }

    /// Whether products are those of e4m3 values, which tensor cores do not add in f32.
    #[must_use]
    pub fn is_rounded(&self) -> bool {
        self.problem.compute_format() == Format::E4m3
    }

    /// The factors of rows of A, `[rows, 1]` or `[rows, ⌈K/128⌉]`, if it has such; of a row of zeros 1.
    fn token_factors(&self, rows: Range<usize>) -> Option<Vec<f64>> {
        let HostMatrix::E4m3 { factors, .. } = &self.a else { return None };
        let each = self.a_shape().factors;
        let of = |row: Option<usize>, at: usize| row.map_or(1.0, |row| f64::from(factors[row * each + at]));
        Some(self.rows_of_a(rows).flat_map(|row| (0..each).map(move |at| of(row, at))).collect())
    }

    /// The same, where a row has several, which are those of sums along K.
    pub(crate) fn factors_along_k(&self, rows: Range<usize>) -> Option<Vec<f64>> {
        self.problem.has_k_factors().then(|| self.token_factors(rows)).flatten()
    }

    /// What the result should be, `[m, N]` (or as many rows as C has slots), by the oracle's own loops: for small problems.
    ///
    /// # Errors
    /// Those of [`HostOperands::check`].
    pub fn reference(&self) -> Result<Reference> {
        self.check()?;
        let n = self.problem.columns() as usize;
        let products = |group, rows: Range<usize>| {
            let a = self.a.decode(self.a_shape(), 0, self.rows_of_a(rows.clone()))?;
            let factors = self.factors_along_k(rows);
            let of = |b: &HostMatrix| {
                let b = b.decode(self.b_shape(), group, (0..n).map(Some))?;
                let products = match &factors {
                    Some(factors) => Products::scaled_along_k(&a, &b, factors)?,
                    None => Products::new(&a, &b)?,
                };
                Ok(if self.is_rounded() { products.cut_in_chunks(&a, &b) } else { products })
            };
            self.b.iter().map(of).collect()
        };
        self.placed(self.reference_from(&(0..n).collect::<Vec<_>>(), products)?)
    }

    /// The rows of a group of what its products become.
    fn part_from(
        &self,
        (group, rows): (usize, &Range<usize>),
        columns: &[usize],
        mut products: Vec<Products>,
        output: Format,
    ) -> Result<Reference> {
        let held = [0, 1].map(|product| self.scaling(product, group, columns));
        let scaling = |product: usize| {
            let [row_scale, bias] = &held[product];
            Scaling { alpha: self.alpha_of(product, group), row_scale: row_scale.as_deref(), bias: bias.as_deref() }
        };
        let leaving = Leaving { output, factors: self.rows.factors.as_ref().map(|factors| &factors[rows.clone()]) };
        if let Some(factors) = self.token_factors(rows.clone()).filter(|_| !self.problem.has_k_factors()) {
            products.iter_mut().for_each(|products| products.scale_rows(&factors));
        }
        match (self.problem.operation(), &products[..]) {
            (Operation::DualGemm(activation), [gate, up]) => {
                oracle::dual_gemm(gate, up, [scaling(0), scaling(1)], activation, leaving)
            }
            (Operation::Gemm(activation), [only]) => oracle::gemm(only, scaling(0), activation, leaving),
            (_, products) => Err(Error::data(format!("{} products of {}", products.len(), self.problem))),
        }
    }

    /// What the product should be in some columns, `[m, columns]`, wherever its rows are put, from products made elsewhere: `products(group, rows)`
    /// gives A·Bᵀ of these rows (never none) and columns, for every B.
    ///
    /// # Errors
    /// Those of `products`; data, if they do not have so many columns.
    pub fn reference_from(
        &self,
        columns: &[usize],
        products: impl Fn(usize, Range<usize>) -> Result<Vec<Products>> + Sync,
    ) -> Result<Reference> {
        // NVFP4 is made of numbers in f32.
        let is_coded = self.problem.c_format() == Format::Nvfp4;
        let output = if is_coded { Format::F32 } else { self.problem.c_format() };
        let groups: Vec<_> = self.groups().into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()).collect();
        let parts = crew::each(&groups, cores(), |(group, rows)| {
            let of_group = products(*group, rows.clone());
            match of_group.and_then(|products| self.part_from((*group, rows), columns, products, output)) {
                Ok(part) => ControlFlow::Continue(Ok(part)),
                Err(error) => ControlFlow::Break(Err(error)),
            }
        });
        let parts = parts.into_iter().map(|(_, part)| part).collect::<Result<Vec<_>>>()?;
        let elements = joined(&parts.iter().map(Reference::elements).collect::<Vec<_>>());
        drop(parts);
        let reference = Reference::new(self.m as usize, columns.len(), output, elements)?;
        if !is_coded {
            return Ok(reference);
        }
        let is_block =
            |block: &[usize]| block[0].is_multiple_of(BLOCK) && block.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        if !columns.chunks(BLOCK).all(is_block) {
            return Err(Error::data("columns of a result in nvfp4 come in whole blocks"));
        }
        let factor = |(group, rows): (usize, Range<usize>)| vec![self.c_factor_of(group); rows.len()];
        let factors = self.groups().into_iter().enumerate().flat_map(factor).collect();
        reference.coded(Coding::new(self.problem.scale_layout(), factors, columns.len())?)
    }

    /// The factor of C in NVFP4 for a group.
    #[must_use]
    pub fn c_factor_of(&self, group: usize) -> f32 {
        if self.c_factor.len() == 1 { self.c_factor[0] } else { self.c_factor[group] }
    }
}

fn check_offsets(offsets: &[i32], groups: usize, m: u32) -> Result<()> {
    if offsets.len() != groups + 1 {
        return Err(Error::data(format!("{} offsets for {groups} groups, {} are needed", offsets.len(), groups + 1)));
    }
    if let Some(pair) = offsets.windows(2).find(|pair| pair[1] < pair[0]) {
        return Err(Error::data(format!("offsets run backwards: {} after {}", pair[1], pair[0])));
    }
    match (offsets.first(), offsets.last()) {
        (Some(0), Some(last)) if u32::try_from(*last) == Ok(m) => Ok(()),
        (first, last) => {
            let [first, last] = [first, last].map(|offset| offset.copied().unwrap_or_default());
            Err(Error::data(format!("offsets go from {first} to {last}, A has rows 0 to {m}")))
        }
    }
}
