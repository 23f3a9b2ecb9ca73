#include "common/base.cuh"

<% include "common/constants.cu" %>
namespace ws {

inline constexpr int WARPS_TOKENS = <{ warps_tokens }>;
inline constexpr int WARPS_COLUMNS = <{ warps_columns }>;
inline constexpr int WARPS_K = <{ warps_k }>;

}  // namespace ws
