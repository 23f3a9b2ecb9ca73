// No logits: the experts are given.
#pragma once
