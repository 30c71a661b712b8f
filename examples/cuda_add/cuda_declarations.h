// The few declarations of CUDA's interface that this example needs, so that it builds on a
// machine without a toolkit. A project that has one includes <cuda_runtime.h> instead.
#pragma once

#include <cstddef>

#ifdef __CUDA__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#else
#define __global__
#define __device__
#define __host__
#endif

struct dim3 {
    unsigned x, y, z;
    __host__ __device__ constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1)
        : x(x), y(y), z(z) {}
};

typedef enum cudaError { cudaSuccess = 0, cudaErrorNoDevice = 100 } cudaError_t;
typedef enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2
} cudaMemcpyKind;
typedef struct CUstream_st* cudaStream_t;

extern "C" {
cudaError_t cudaGetDeviceCount(int* count);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaMalloc(void** pointer, std::size_t size);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind kind);
cudaError_t cudaDeviceSynchronize(void);

// What the compiler calls for kernel<<<grid, block>>>(...).
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared, cudaStream_t stream);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared = 0,
                                     cudaStream_t stream = nullptr);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared,
                                       void* stream);
}
