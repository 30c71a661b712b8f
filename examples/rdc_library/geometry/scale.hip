#include "geometry.h"

// One variable for host and device: the host finds the device's by the name that the
// compiler gives it, which holds the CUID of this source.
static __device__ int scaled_values;

// Before the device's use: clang 22 must know by then that host code asks for the variable.
int values_scaled() {
    int count = 0;
    hipError_t error = hipMemcpyFromSymbol(&count, &scaled_values, sizeof count);
    return error == hipSuccess ? count : -1;
}

#ifdef __gfx90a__
constexpr float kFactor = 2.0f;
#else
constexpr float kFactor = 3.0f;
#endif

__device__ float scaled(float value) {
    __atomic_fetch_add(&scaled_values, 1, __ATOMIC_RELAXED);
    return value * kFactor;
}
