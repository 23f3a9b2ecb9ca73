
// Adds the partial sums [split, product, row, column] in the order of the splits, so that the same call gives the same
// bits, then applies α and activation and rounds to C. One block a row (and 1024 columns), four columns a thread.
extern "C" __global__ void __launch_bounds__(256) <{ symbol }>_finish(const __grid_constant__ ws::<{ params }> params) {
  using namespace ws;
  const int row = blockIdx.x;
  const int column = (blockIdx.y * 256 + threadIdx.x) * 4;
  wait_for_dependencies();
  const int group = group_of_row(params, row);
  if (group < 0 || column >= N) return;

  // −0 changes no first addend, not even −0: one split through the workspace is bit for bit what stays in registers.
  float sum[PRODUCTS][4];
  for (int product = 0; product < PRODUCTS; product++)
    for (float& start : sum[product]) start = -0.f;
  for (int split = 0; split < SPLITS; split++) {
    for (int product = 0; product < PRODUCTS; product++) {
      const float4 part = *reinterpret_cast<const float4*>(partial_sum(params, split, product, row, column));
      sum[product][0] += part.x;
      sum[product][1] += part.y;
      sum[product][2] += part.z;
      sum[product][3] += part.w;
    }
  }
  const Alphas alphas(params, group);
  const HeldColumns<4> columns(params, group, [&](int i) { return column + i; });
  float result[4];
  for (int i = 0; i < 4; i++) {
    float products[PRODUCTS];
    for (int product = 0; product < PRODUCTS; product++) products[product] = sum[product][i];
    result[i] = Destination::scaled(params, row, combine(products, alphas, columns.of[i]));
  }
  const int to = Destination::row(params, row);
  if (Destination::is_there(params, to)) store_columns<1>(params, group, to, column, result);
}
