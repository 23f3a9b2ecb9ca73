#!/usr/bin/env bash
# The ladders of fusions, stages, tiles and splits on the four dual shapes and at small M; every kernel is checked before
# it is timed. RUN names the program; by default cargo builds it.
set -euo pipefail
read -ra run <<< "${RUN:-cargo run --quiet --release --example run_shapes --}"

join() { local IFS=,; echo "$*"; }
baseline=mma.t128x128x64.s1.two_pass.uniform.direct
wide=("$baseline")
for stages in 2 3 4; do wide+=("mma.t128x128x64.s$stages.two_pass.uniform.direct"); done
for fusion in sequential interleaved; do
  for stages in 1 2 3 4; do wide+=("mma.t128x128x64.s$stages.$fusion.uniform.direct"); done
done
for tile in 64x64x64 64x128x64 128x64x64 256x64x64 64x64x128 64x128x128 128x64x128 96x128x64; do
  wide+=("mma.t$tile.s3.interleaved.uniform.direct")
done
wide+=(mma.t128x128x64.s3.interleaved.uniform.direct.k2 mma.t128x64x64.s3.interleaved.uniform.direct.k2
  mma.t64x64x256.s2.interleaved.uniform.direct mma.t128x256x64.s3.two_pass.uniform.direct
  mma.t256x64x64.s3.two_pass.uniform.direct)

small=("$baseline" mma.t8x128x64.s1.two_pass.uniform.direct mma.t8x128x64.s1.interleaved.uniform.direct)
for stages in 2 4 8; do small+=("mma.t8x128x64.s$stages.interleaved.uniform.direct"); done
for split in 2 4 8; do small+=("mma.t8x128x64.s4.interleaved.uniform.direct.k$split"); done
for k in 128 256; do small+=("mma.t8x128x$k.s4.interleaved.uniform.direct.k4"); done
for columns in 32 64 256; do small+=("mma.t8x${columns}x128.s4.interleaved.uniform.direct.k4"); done
for stages in 2 3 4; do small+=("mma.t8x32x256.s$stages.interleaved.uniform.direct"); done
for split in 2 4; do small+=("mma.t8x32x256.s3.interleaved.uniform.direct.k$split"); done
for tokens in 16 32 64; do small+=("mma.t${tokens}x128x128.s3.interleaved.uniform.direct.k4"); done

grouped() { # fusion
  for tile in 128x128x64 96x128x64 64x128x64 64x128x128 128x64x64 64x64x64 64x64x128 32x128x128; do
    echo "mma.t$tile.s3.$1.uniform.direct"
  done
}

for shape in "256 4096 7168" "512 4096 7168" "256 3072 4096" "512 3072 7168"; do
  read -r m n k <<< "$shape"
  for a in nvfp4 f16; do
    echo "== dual_gemm.silu:$a*nvfp4>f16:n$n:k$k, M = $m"
    "${run[@]}" --problem "dual_gemm.silu:$a*nvfp4>f16:n$n:k$k" --m "$m" --variant "$(join "${wide[@]}")"
  done
done
for m in 1 8; do
  echo "== dual_gemm.silu:f16*nvfp4>f16:n4096:k7168, M = $m"
  "${run[@]}" --problem "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168" --m "$m" --variant "$(join "${small[@]}")"
done
for case in "8 4096 7168 80,176,128,72,64,248,96,160" "8 7168 2048 40,76,168,72,164,148,196,160" \
  "2 3072 4096 192,320" "2 4096 1536 128,384"; do
  read -r groups n k rows <<< "$case"
  for a in f16 nvfp4; do
    for kind in "gemm single single" "dual_gemm.silu two_pass interleaved"; do
      read -r operation slow fast <<< "$kind"
      problem="grouped$groups.$operation:$a*nvfp4>f16:n$n:k$k"
      echo "== $problem, M = $rows"
      mapfile -t variants < <(grouped "$fast")
      "${run[@]}" --problem "$problem" --m "$rows" \
        --variant "$(join "mma.t128x128x64.s1.$slow.uniform.direct" "${variants[@]}")"
    done
  done
done
