#!/bin/sh
# What each value of each axis of the wgmma path gains or costs on the four shapes of the public NVFP4 dual-GEMM
# benchmark: one ladder a shape, every variant checked before it is timed, all against the first.
#   docs/measurements/axes.sh [path to run_shapes]
run=${1:-target/release/examples/run_shapes}
base=wgmma.t128x64x128.s4.interleaved.ws2.shared.prepass
variants="$base
wgmma.t128x64x128.s1.interleaved.ws2.shared.prepass
wgmma.t128x64x128.s2.interleaved.ws2.shared.prepass
wgmma.t128x64x128.s3.interleaved.ws2.shared.prepass
wgmma.t128x64x128.s5.interleaved.ws2.shared.prepass
wgmma.t128x64x128.s4.two_pass.ws1.direct.prepass
wgmma.t128x64x128.s4.sequential.ws1.shared.prepass
wgmma.t64x64x128.s4.per_product.ws2.shared.prepass
wgmma.t128x32x128.s4.ping_pong.ws2.shared.persistent.prepass
wgmma.t64x64x128.s5.ping_pong.ws4.shared.persistent.prepass
wgmma.t128x64x128.s4.interleaved.uniform.shared.prepass
wgmma.t128x32x128.s4.interleaved.ws1.shared.prepass
wgmma.t128x32x128.s4.interleaved.ws2.shared.prepass
wgmma.t64x64x128.s4.interleaved.ws2.shared.prepass
wgmma.t64x64x128.s4.interleaved.ws4.shared.prepass
wgmma.t128x64x128.s4.interleaved.ws2.direct.prepass
wgmma.t128x64x128.s4.interleaved.ws2.tma.prepass
wgmma.t32x64x128.s4.interleaved.ws2.shared.prepass
wgmma.t96x64x128.s4.interleaved.ws2.shared.prepass
wgmma.t192x64x64.s5.interleaved.ws2.shared.prepass
wgmma.t256x64x64.s4.interleaved.uniform.shared.prepass
wgmma.t128x96x128.s4.interleaved.ws3.shared.prepass
wgmma.t128x128x128.s4.interleaved.uniform.shared.prepass
wgmma.t128x64x64.s8.interleaved.ws2.shared.prepass
wgmma.t64x64x256.s2.interleaved.ws2.shared.prepass
wgmma.t128x64x128.s4.interleaved.ws2.direct.k2.prepass
wgmma.t128x64x128.s4.interleaved.ws2.direct.k4.prepass
wgmma.t128x64x128.s4.interleaved.ws2.shared.dsmem2.prepass
wgmma.t128x64x128.s4.interleaved.ws2.shared.dsmem4.prepass
wgmma.t128x64x128.s4.interleaved.ws2.shared.multicast2.prepass
wgmma.t64x64x256.s2.interleaved.ws2.shared.multicast4.prepass
wgmma.t128x64x128.s4.interleaved.ws2.shared.persistent.prepass
wgmma.t128x64x128.s4.interleaved.ws2.shared"
list=$(echo "$variants" | paste -sd, -)
for shape in n4096:k7168/256 n4096:k7168/512 n3072:k4096/256 n3072:k7168/512; do
  "$run" --dependent --problem "dual_gemm.silu:nvfp4*nvfp4>f16:${shape%/*}:prepared" --m "${shape#*/}" --variant "$list"
done
