// Rows in f16.
#pragma once

namespace ws {

using Rows = F16Values;

}  // namespace ws
