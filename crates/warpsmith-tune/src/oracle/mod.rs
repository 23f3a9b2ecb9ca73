//! The truth: slow, obvious, on the CPU, in f64.
//!
//! For every element of a result the oracle gives the exact value *and* how far a correct kernel may be from it, so
//! that no test has a tolerance of its own. Two layers, so that either can be replaced:
//!
//! 1. [`Products`]: Σ a·b and Σ |a·b| for every element, in f64. Large ones may come from a matrix library
//!    ([`Products::from_parts`]).
//! 2. [`gemm`] and [`dual_gemm`]: from the products, α, the activation and the output format to [`Reference`], an
//!    [`Expected`] (value and bound) per element. [`grouped`] runs either of them group by group.
//!
//! Operands are [`Matrix`]: the exact f32 values that a kernel multiplies. NVFP4's tensor scale is part of α.
//!
//! # The bound, and why it is what it is
//! Write u(f) for half an ulp of format f. A kernel may be away from the exact value by:
//!
//! * **Products: nothing.** Operands have at most 11 significant bits (f16; NVFP4's code × scale has 5), so a·b is
//!   exact in f32. (f32 operands are accepted by the oracle, but their bound would have to be wider than this.)
//! * **Accumulation:** `e_acc = (K/16 + 16)·2⁻²²·Σ|a·b|`. Tensor cores add 16 products at a step to an f32 accumulator
//!   and may truncate what falls below its last bits: K/16 steps, each at most 2⁻²² of what has been summed so far,
//!   which is at most Σ|a·b|. The order is free: 16 more steps pay for split-K and for pairwise sums of partial
//!   results. (The path `mxf4` adds 64 products at a step, exactly, and truncates: K/64 steps of 2⁻²³ each are less.)
//! * **Accumulation of e4m3 products:** on Hopper the 32 products of an instruction, and what they are added to, are aligned to
//!   the greatest of them, and what is below 13 bits of that is cut off, of the sum too: 34·2⁻¹³ of the greatest an
//!   instruction. Sums begin anew every 128 of K, four instructions: the greatest is at most the P of what is added in one, or
//!   the P of all four, so `(33·(1 + 3) + 4)·2⁻¹³·P`, rounded up to 140·2⁻¹³·P, and Σ over all 128 is that of all of K. f32 sums of
//!   these are as above. That is wide, 1.7 %. But where all products of an element are multiples of a power of two g, and
//!   P of each 128 is at most 2¹³·g, nothing is cut off: there `e_acc = 16·2⁻²²·Σ|a·b|`, for what f32 rounds. Operands are drawn
//!   such that this is so (`Spread::Exact`). Powers of two of subnormal factors are taken to be those of 2⁻⁶, which is more than
//!   any counts for here. The factor of a token is one more f32 rounding, for which α's bound has room.
//! * **Factors along K:** a sum over 128 of K times its factor is added to the others with one rounding to nearest, 2⁻²⁴ of what has
//!   been added so far: ⌈K/128⌉·2⁻²⁴·Σ|f·a·b| more, where both sums are with factors. What is said of 128 of K above is said without.
//! * **α:** `e₁ = |α|·e_acc + 2⁻²³·|α|·(|s| + e_acc)`: α is a f32, the multiplication rounds once; a second rounding
//!   (α folded from two factors) fits too.
//! * **Factor and bias of a column:** a f32 multiplication and a f32 addition, which round once each: `e₁·|r| +
//!   2⁻²³·(|α·s·r| + e₁·|r|)` for a factor r, and 2⁻²³ of the sum for a bias, whose value is exact. Below, e₁ is with them.
//! * **Activation of the gate:** `e_act = L·e₁ + |act(x)|·ε(z) + 10⁻³⁰`. L is the largest slope (1.0999 for silu,
//!   1.13 for gelu_tanh). Both functions are x·σ(z), with z = x for silu and z = 2·√(2/π)·(x + 0.044715·x³) for
//!   gelu_tanh. With an approximate exponential and division, σ(z) = 1/(1 + e^(−z)) is off by 2⁻²⁰ relative, plus what
//!   the rounding of z, at most |z|·2⁻²² absolute, does to e^(−z); that reaches σ multiplied by 1 − σ(z):
//!   `ε(z) = 2⁻²⁰ + |z|·2⁻²²·(1 − σ(z))`. The floor is where e^(−z) or its reciprocal leaves f32's range.
//!   gelu computed as x/2·(1 + tanh) cancels for x < 0, by |x|·2⁻²⁴, for which L·e₁ has room; the 2⁻¹¹ of
//!   `tanh.approx` (PTX ISA) is not within the bound.
//! * **gelu** by erf is max(x, 0) − t·Q(t) with t = |x| and Q(t) = Φ(−t) ≤ 1/2: the same bound with L = 1.13 (its largest
//!   slope is 1.129), where `ε` has, instead of z, the argument t²/2 of Q's exponential, which reaches t·Q(t) alone:
//!   `|act(x)|·2⁻¹⁹ + t·Q(t)·(t²/2)·2⁻²²`. 2⁻¹⁹ of t·Q(t), which is at most |act(x)|, pays for Q's polynomial (2⁻²³·⁵) and its
//!   Horner steps (2⁻²³), for 1/(1 + c·t) (2⁻²³ and a rounding, which reach Q up to 2.7 times), the exponential (2⁻²²) and
//!   four roundings. gelu computed as x/2·(1 + erf) is off by |x|·2⁻²⁴, as above.
//! * **Clamps** round nothing, and move no two values apart: what is off by e₁ before is off after by at most the part of
//!   x ± e₁ that lies within the limits, which is nothing where all of it lies outside. `silu_clamp` is then silu; the gate of
//!   `swiglu_oai` is x·σ(1.702·x), which is silu(1.702·x)/1.702 and no steeper, with z = 1.702·x; its up product gets 1
//!   added, a f32 addition (2⁻²³ of the sum). An overflow before a clamp ends at its limit.
//! * **relu²** has no largest slope. max(x, 0) is a clamp, off by e; its square by `2·max(x, 0)·e + e²`, and 2⁻²³ for its
//!   rounding.
//! * **gate ⊙ up:** `|act|·e₂ + |x₂|·e_act + e_act·e₂`, and 2⁻²³ of the product for its own rounding.
//! * **Output:** half an ulp of the format at |value| + everything so far, subnormals included.
//!
//! The bound grows with Σ|a·b|, not with |Σ a·b|, as any honest bound does; losing 16 of 2048 random products still
//! exceeds it almost everywhere (`tests/oracle.rs` holds it to that).
//!
//! A result in NVFP4 is judged by its bytes, from the bounds of the numbers that it is quantised from, which are f32:
//! [`RightScales`], [`error_of_code`].
//!
//! # Beyond the range
//! Where value − bound is above the output format's largest finite number an infinity of the right sign is required;
//! where value + bound is below, a finite number; between the two, either will do. Where an *intermediate* f32 (a
//! product before the activation, say) may overflow, the bound is infinite and anything but NaN passes. NaN is right
//! exactly where the formula in f64 gives NaN; so silu(−∞) and gelu_tanh(−∞), which are −∞/∞, are NaN. The other
//! activations have their limits at ±∞: of −∞ they are 0.

mod activation;
mod coded;
pub mod combine;
mod expected;
mod finish;
pub mod layer;
mod matrix;
mod products;
pub mod quantise;
pub mod quantise_weights;
pub mod route;
mod uncertain;

pub use activation::{activate, evaluated, linear};
pub use coded::{Coding, RightScales, error_of_code};
pub(crate) use expected::joined;
pub use expected::{Expected, Reference};
pub use finish::{Leaving, Scaling, dual_gemm, gemm, grouped};
pub use matrix::Matrix;
pub use products::Products;
pub(crate) use products::{CHUNK, grain};
