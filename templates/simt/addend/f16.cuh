// What is added, in the format of the result: f16.
#pragma once

namespace ws {

using Addend = F16Values;

}  // namespace ws
