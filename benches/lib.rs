//! Benchmarks of what warpsmith takes on the host: see the benches.
