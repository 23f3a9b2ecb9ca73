//! Files of warpsmith under loom: see the tests.
