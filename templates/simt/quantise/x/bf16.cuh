// What is quantised, in bf16.
#pragma once

namespace ws {

using X = Bf16Values;

}  // namespace ws
