//! Loads by tensor maps with `cta_group::2`: what the emulator has to find.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::DevicePtr;
use cudarc::driver::sys::{
    self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue_union__bindgen_ty_1, CUlaunchConfig, CUresult,
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle,
};
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::build::Source;
use warpsmith::spec::{Arch, Problem, Spec};

use crate::bench::{Bench, text};

/// A kernel of two pairs, each block with 64 threads and 1 KiB, and a barrier in it. Its map is of 4 rows of 64 numbers, counted
/// on, in boxes of one. The fourth block asks for what the others wait for.
pub struct Fault {
    pub name: &'static str,
    /// What is done between arriving at the cluster's barrier and waiting there.
    between: &'static str,
    /// What the fourth block does.
    asks: &'static str,
    /// Bytes that the first block of each pair announces.
    announced: u32,
    /// What the emulator says; nothing, if it is right.
    pub said: &'static str,
}

/// At the barrier of its own pair's first block.
const FIRST: &str = "map_shared_rank(at, rank & ~1u)";
const NOTHING_WRONG: Fault = Fault {
    name: "a pair's load for two pairs",
    between: "",
    asks: "tensor_load_2d_pair_multicast(at + 512, map, 0, 2, FIRST, 15);",
    announced: 512,
    said: "",
};

pub const FAULTS: &[Fault] = &[
    NOTHING_WRONG,
    // The barrier waits for all that have not ended.
    Fault {
        name: "threads that arrive and end",
        between: "if (threadIdx.x >= 32 && rank != 0) return;",
        ..NOTHING_WRONG
    },
    Fault {
        name: "a pair's load for a block that there is not",
        asks: "tensor_load_2d_pair_multicast(at + 512, map, 0, 2, FIRST, 31);",
        said: "blocks 0x1f of a cluster of 4",
        ..NOTHING_WRONG
    },
    Fault {
        name: "a pair's load for nobody",
        asks: "tensor_load_2d_pair_multicast(at + 512, map, 0, 2, FIRST, 0);",
        said: "blocks 0x0 of a cluster of 4",
        ..NOTHING_WRONG
    },
    Fault {
        name: "a pair's load for one of two pairs",
        asks: "tensor_load_2d_pair_multicast(at + 512, map, 0, 2, FIRST, 12);",
        said: "deadlock",
        ..NOTHING_WRONG
    },
    Fault {
        name: "a pair's load for one block of each",
        asks: "tensor_load_2d_pair_multicast(at + 512, map, 0, 2, FIRST, 5);",
        said: "deadlock",
        ..NOTHING_WRONG
    },
    Fault {
        name: "a pair's load at another pair's barrier",
        asks: "tensor_load_2d_pair_multicast(at + 512, map, 0, 2, map_shared_rank(at, 0), 15);",
        said: "data of block 3 and the barrier of block 0, of another pair",
        ..NOTHING_WRONG
    },
    Fault {
        name: "a pair's load at the second blocks' barriers",
        asks: "tensor_load_2d_pair_multicast(at + 512, map, 0, 2, at, 15);",
        said: "deadlock",
        ..NOTHING_WRONG
    },
    Fault {
        name: "a pair's load of which the bytes of one block are announced",
        announced: 256,
        // Either nobody goes on, or some do too early.
        said: "emulator: kernel: ",
        ..NOTHING_WRONG
    },
    Fault {
        name: "a pair's load of which the bytes of three blocks are announced",
        announced: 768,
        said: "deadlock",
        ..NOTHING_WRONG
    },
    Fault {
        name: "a pair's load of another row",
        asks: "tensor_load_2d_pair_multicast(at + 512, map, 0, 3, FIRST, 15);",
        said: "__trap",
        ..NOTHING_WRONG
    },
    Fault {
        name: "a pair's load to no multiple of 128",
        asks: "tensor_load_2d_pair_multicast(at + 528, map, 0, 2, FIRST, 15);",
        said: "is no multiple of 128",
        ..NOTHING_WRONG
    },
];

impl Fault {
    fn source(&self) -> Result<Source, String> {
        let problem = Problem::gemm().n(128).k(256).a(Format::Nvfp4).scales(ScaleLayout::Swizzled128x4);
        let variant = "tcgen05.t64x128x256.s1.single.ws1.direct".parse().map_err(text)?;
        let spec = Spec::new(&problem, &variant, &Arch::B200).map_err(text)?;
        let headers = warpsmith::internal::build::render(&spec).map_err(text)?.headers();
        let (between, asks, announced) = (self.between, self.asks.replace("FIRST", FIRST), self.announced);
        let cuda = format!(
            "#include \"common/base.cuh\"\n#include \"tcgen05/ptx.cuh\"\n\
             extern __shared__ __align__(1024) unsigned words[];\n\
             extern \"C\" __global__ void kernel(const __grid_constant__ ws::TensorMap map) {{\n\
             using namespace ws;\n\
             const u32 at = __cvta_generic_to_shared(words), rank = cluster_rank();\n\
             if (threadIdx.x == 0) mbarrier_init(at, 1);\n\
             fence_mbarrier_init();\n\
             cluster_arrive();\n{between}\ncluster_wait();\n\
             if (threadIdx.x == 0 && rank == 3) {asks}\n\
             if (rank % 2 == 0) {{\n\
               if (threadIdx.x == 0) mbarrier_arrive_expect_tx(at, {announced});\n\
               mbarrier_wait(at, 0);\n\
             }}\n\
             cluster_arrive();\ncluster_wait();\n\
             if (words[128 + threadIdx.x] != 2 * 64 + threadIdx.x) __trap();\n}}\n",
        );
        Ok(Source::new("fault.cu", cuda, headers, ["kernel"]))
    }

    /// Whether the launch fails, if something is wrong. What is said about it the parent looks at.
    pub fn is_found(&self, bench: &Bench) -> Result<(), String> {
        let cubin = warpsmith::internal::build::compile(bench.toolchain(), &self.source()?, bench.arch().target());
        let cubin = cubin.map_err(text)?;
        let numbers: Vec<u32> = (0..4 * 64).collect();
        let memory = bench.stream.clone_htod(&numbers).map_err(text)?;
        let map = rows_of_64(memory.device_ptr(&bench.stream).0)?;
        match (launch(cubin.image(), &map), self.said.is_empty()) {
            (Ok(()), true) | (Err(_), false) => Ok(()),
            (Ok(()), false) => Err("the launch succeeds".to_owned()),
            (Err(error), true) => Err(error),
        }
    }
}

fn done(result: CUresult) -> Result<(), String> {
    result.result().map_err(text)
}

fn rows_of_64(address: u64) -> Result<CUtensorMap, String> {
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: every pointer is to a live array of as many elements as a map of two dimensions takes.
    let encoded = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
            2,
            address as *mut c_void,
            [64_u64, 4].as_ptr(),
            [256_u64].as_ptr(),
            [64_u32, 1].as_ptr(),
            [1_u32; 2].as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    done(encoded).map(|()| map)
}

/// Two pairs, which are a cluster.
fn launch(image: &[u8], map: &CUtensorMap) -> Result<(), String> {
    // SAFETY: all zeros is a value of this struct: `IGNORE`, and a union of plain numbers.
    let mut cluster: CUlaunchAttribute = unsafe { std::mem::zeroed() };
    cluster.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = CUlaunchAttributeValue_union__bindgen_ty_1 { x: 4, y: 1, z: 1 };
    let config = CUlaunchConfig {
        gridDimX: 4,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 64,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 1024,
        hStream: ptr::null_mut(),
        attrs: &raw mut cluster,
        numAttrs: 1,
    };
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    let mut arguments = [(&raw const *map).cast_mut().cast::<c_void>()];
    // SAFETY: the image is a whole cubin whose kernel takes a map; what it points at lives through the calls, and the emulator
    // refuses what is wrong.
    unsafe {
        done(sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()))?;
        done(sys::cuModuleGetFunction(&raw mut function, module, c"kernel".as_ptr()))?;
        let launched =
            done(sys::cuLaunchKernelEx(&raw const config, function, arguments.as_mut_ptr(), ptr::null_mut()));
        launched.and_then(|()| done(sys::cuCtxSynchronize()))
    }
}
