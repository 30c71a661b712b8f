// Evaluates the library's device function for each thread, and checks the values.
#include <cstdio>

#include "field.cuh"

constexpr int kCount = 4096, kBlock = 128;
__device__ float results[kCount];

__global__ void evaluate() {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < kCount) results[i] = wave(static_cast<float>(i));
}

static int run_on_device() {
    set_field({3, 0.5f});
    evaluate<<<kCount / kBlock, kBlock>>>();
    cudaError_t error = cudaDeviceSynchronize();
    static float values[kCount];
    cudaMemcpyFromSymbol(values, results, sizeof values);
    int wrong = 0;
    for (int i = 0; i < kCount; ++i) wrong += values[i] != 3 * i * 0.5f + 1;
    unsigned evaluated = count_evaluations();
    std::printf("app: %d of %d values wrong, %u evaluated, %s\n", wrong, kCount, evaluated,
                cudaGetErrorString(error));
    return wrong != 0 || evaluated != kCount || error != cudaSuccess;
}

int main() {
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        std::printf("app: no CUDA device (%s); nothing was run\n", cudaGetErrorString(error));
        return 0;
    }
    return run_on_device();
}
