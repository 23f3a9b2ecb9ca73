namespace ws {

inline constexpr int N = <{ n }>;
inline constexpr int K = <{ k }>;
inline constexpr int GROUPS = <{ groups }>;
inline constexpr int PRODUCTS = <{ products }>;
// What the activation clamps products at; 0 where it does not. No variable, which would be in every cubin.
enum : int { LIMIT = <{ limit }> };

inline constexpr int TOKENS = <{ tokens }>;
inline constexpr int COLUMNS = <{ columns }>;
inline constexpr int TILE_K = <{ tile_k }>;
inline constexpr int STAGES = <{ stages }>;
inline constexpr int SPLITS = <{ splits }>;
inline constexpr int STAGE_BYTES = <{ stage_bytes }>;
inline constexpr int SHARED_BYTES = <{ shared_bytes }>;
// Also at 1 this must be said: without it ptxas gave some sm_90a kernels 32 registers and spilled the rest.
inline constexpr int BLOCKS_PER_SM = <{ blocks_per_sm }>;

}  // namespace ws
