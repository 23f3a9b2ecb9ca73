//! Kernels for tests.

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

/// The text of a kernel with spills, static and dynamic shared memory, and a bound.
pub fn spilling(symbol: &str) -> String {
    format!(
        r#"extern "C" __global__ void __launch_bounds__(1024, 2) {symbol}(float* x, int n) {{
    extern __shared__ float dynamic[];
    __shared__ float fixed[256];
    float r[40];
    #pragma unroll
    for (int i = 0; i < 40; i++) r[i] = x[i * n + threadIdx.x];
    fixed[threadIdx.x & 255] = r[3] + dynamic[n];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 40; i++) for (int j = 0; j < 8; j++) r[i] = r[i] * r[j * 5] + fixed[(i + threadIdx.x) & 255];
    #pragma unroll
    for (int i = 0; i < 40; i++) x[i * n + threadIdx.x] = r[i];
}}
"#
    )
}
