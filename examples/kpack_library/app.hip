// Fills, scales and sums 64 values on the GPU: a kernel of its own, and two of the library.
#include <cstdio>

#include "hip_declarations.h"

void start_scale(float* values, int count, float by);
void start_sum(const float* values, int count, float* result);

__global__ void fill(float* values) { values[__builtin_amdgcn_workitem_id_x()] = 1; }

int main() {
    constexpr int kCount = 64;
    int devices = 0;
    hipError_t error = hipGetDeviceCount(&devices);
    if (error != hipSuccess || devices == 0) {
        std::printf("measure: no HIP device (%s); no kernel was run\n", hipGetErrorString(error));
        return 0;
    }
    void* memory = nullptr;
    if (hipMalloc(&memory, (kCount + 1) * sizeof(float)) != hipSuccess) return 1;
    float* values = static_cast<float*>(memory);
    fill<<<dim3(1), dim3(kCount)>>>(values);
    start_scale(values, kCount, 0.5f);
    start_sum(values, kCount, values + kCount);
    error = hipDeviceSynchronize();
    float result = 0;
    hipMemcpy(&result, values + kCount, sizeof result, hipMemcpyDeviceToHost);
    hipFree(memory);
    std::printf("measure: %g of 32, %s\n", result, hipGetErrorString(error));
    return error != hipSuccess || result != 32;
}
