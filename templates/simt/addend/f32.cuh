// What is added, in the format of the result: f32.
#pragma once

namespace ws {

using Addend = F32Values;

}  // namespace ws
