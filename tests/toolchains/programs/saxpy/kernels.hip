#include <hip/hip_runtime.h>

extern "C" __global__ void scale(float* values, float factor) {
    values[blockIdx.x * blockDim.x + threadIdx.x] *= factor;
}
