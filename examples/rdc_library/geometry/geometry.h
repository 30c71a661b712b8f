// What the library offers to device code and to host code.
#pragma once

#include "hip_declarations.h"

__device__ float length_squared(float x, float y, float z);
__device__ float scaled(float value);

// How many values the library's kernel has scaled; -1 where there is no device.
int values_scaled();
