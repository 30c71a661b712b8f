#include <hip/hip_runtime.h>

__device__ float offset = 1.0f;

extern "C" __global__ void shift(float* values) { values[threadIdx.x] += offset; }
