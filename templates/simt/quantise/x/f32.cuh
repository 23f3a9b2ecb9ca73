// What is quantised, in f32.
#pragma once

namespace ws {

using X = F32Values;

}  // namespace ws
