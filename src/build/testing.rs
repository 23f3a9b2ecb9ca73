//! A kernel for the tests of caches.

use super::Cubin;

/// An ELF file with the kernel `k`, as far as caches look at it.
pub const EMPTY: &[u8] = include_bytes!("../../tests/support/src/empty.cubin");

/// A kernel that nobody compiles or runs; its image ends with these bytes.
pub fn cubin(tail: &[u8]) -> Cubin {
    let about = serde_json::json!({
        "provenance": {
            "name": "k.cu", "problem": "", "variant": "", "target": "", "toolchain": "", "options": [], "source": "",
        },
        "resources": [{
            "entry": "k", "registers": 8, "local_bytes": 0, "static_shared_bytes": 0, "max_threads": null,
            "code_bytes": 0, "spills": null,
        }],
        "compile_us": 0,
        "log": "",
    });
    Cubin::from_parts(serde_json::from_value(about).unwrap(), [EMPTY, tail].concat()).unwrap()
}
