// One helper an instruction, named after it. Sections are those of the PTX ISA manual, "Instruction Set".
#pragma once

namespace ws {

// "Matrix multiply-accumulate: ldmatrix": four 8×16-byte matrices. Lane 8·i + r gives the address of row r of matrix i;
// lane 4·g + c gets bytes 4c … 4c+3 of row g of matrix i in r[i].
__device__ __forceinline__ void ldmatrix_x4(u32 shared, u32 (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

// "Matrix multiply-accumulate: mma with block scaling": d += a·b of e2m1 codes, each 16 of them along k times an e4m3
// scale of their own, without its sign. Lane = 4·g + c holds of
//   a: row g (a0, a2) and row g + 8 (a1, a3), k = 8c … 8c+7 (a0, a1) and 32 + the same (a2, a3), the first k lowest
//   b: column g, the same k (b0, b1)
//   d: row g (d0, d1) and row g + 8 (d2, d3), columns 2c and 2c+1
//   scales_a: the four along k of row g where c = 2·A_THREAD, of row g + 8 where c = 2·A_THREAD + 1
//   scales_b: the four along k of column g where c = B_THREAD
// Other lanes' scales are not looked at.
template <int A_THREAD, int B_THREAD>
__device__ __forceinline__ void mma_m16n8k64_mxf4nvf4(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1,
                                                      u32 scales_a, u32 scales_b) {
  asm("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {0,%12}, {%11}, {0,%13};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(scales_a), "r"(scales_b), "n"(A_THREAD),
        "n"(B_THREAD));
}

}  // namespace ws
