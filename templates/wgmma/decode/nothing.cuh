// Weights that are what is multiplied already.
#pragma once
