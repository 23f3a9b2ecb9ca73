//! Programs of safe calls that would let memory be freed, moved or read too early. The driver is one without a device that
//! tells which uses of memory no stream orders; each program is refused, or ordered.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod freed;
mod graphs;
mod order;
mod scene;
mod waited_for;
mod workspaces;
