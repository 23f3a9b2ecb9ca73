// What is quantised, in f16.
#pragma once

namespace ws {

using X = F16Values;

}  // namespace ws
