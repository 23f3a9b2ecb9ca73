// Rows in bf16.
#pragma once

namespace ws {

using Rows = Bf16Values;

}  // namespace ws
