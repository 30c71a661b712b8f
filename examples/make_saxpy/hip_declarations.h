// The few declarations of HIP's interface that this example needs, so that it builds on a
// machine without ROCm. A project that has ROCm includes <hip/hip_runtime.h> instead.
#pragma once

#include <cstddef>

#ifdef __HIP__
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

typedef enum hipError_t { hipSuccess = 0, hipErrorNoDevice = 100 } hipError_t;
typedef enum hipMemcpyKind { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2 } hipMemcpyKind;
typedef struct ihipStream_t* hipStream_t;

extern "C" {
hipError_t hipGetDeviceCount(int* count);
const char* hipGetErrorString(hipError_t error);
hipError_t hipMalloc(void** pointer, std::size_t size);
hipError_t hipFree(void* pointer);
hipError_t hipMemcpy(void* to, const void* from, std::size_t size, hipMemcpyKind kind);
hipError_t hipMemcpyFromSymbol(void* to, const void* symbol, std::size_t size,
                               std::size_t offset = 0,
                               hipMemcpyKind kind = hipMemcpyDeviceToHost);
hipError_t hipDeviceSynchronize(void);

// What the compiler calls for kernel<<<grid, block>>>(...).
hipError_t hipLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                           std::size_t shared, hipStream_t stream);
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared = 0,
                                      hipStream_t stream = nullptr);
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared,
                                     hipStream_t* stream);
}
