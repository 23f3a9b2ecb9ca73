// What is added, in the format of the result: bf16.
#pragma once

namespace ws {

using Addend = Bf16Values;

}  // namespace ws
