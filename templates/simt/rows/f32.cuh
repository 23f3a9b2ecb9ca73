// Rows in f32.
#pragma once

namespace ws {

using Rows = F32Values;

}  // namespace ws
