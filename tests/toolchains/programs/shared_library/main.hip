// The program has device code of its own; the library registers its kernels by itself.
#include "device.h"
#include "filter.h"

__global__ void fill(float* values) { values[threadIdx.x] = threadIdx.x; }

int main() {
    need_device();
    constexpr int kCount = 64;
    float *values, host[kCount];
    CHECK(hipMalloc(&values, sizeof host));
    fill<<<1, kCount>>>(values);
    clamp_values(values, kCount, 10.0f);
    CHECK(hipMemcpy(host, values, sizeof host, hipMemcpyDeviceToHost));
    int wrong = clamp_calls() != 1;
    for (int i = 0; i < kCount; ++i) wrong += host[i] != (i < 10 ? i : 10);
    return verdict("shared_library", wrong);
}
