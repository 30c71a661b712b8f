#include "device.h"

#include <rocprim/rocprim.hpp>

struct Larger {
    __host__ __device__ int operator()(int a, int b) const { return a > b ? a : b; }
};

int largest(int* values, unsigned count) {
    int *result, answer;
    void* temporary = nullptr;
    size_t size = 0;
    CHECK(hipMalloc(&result, sizeof(int)));
    CHECK(rocprim::reduce(temporary, size, values, result, 0, count, Larger()));
    CHECK(hipMalloc(&temporary, size));
    CHECK(rocprim::reduce(temporary, size, values, result, 0, count, Larger()));
    CHECK(hipMemcpy(&answer, result, sizeof(int), hipMemcpyDeviceToHost));
    CHECK(hipFree(temporary));
    CHECK(hipFree(result));
    return answer;
}
