// Device code of the program calls device code of the library, and the library has kernels.
#include "device.h"
#include "dot.h"

__global__ void square(float* values) {
    values[threadIdx.x] = product(values[threadIdx.x], values[threadIdx.x]);
}

int main() {
    need_device();
    constexpr int kCount = 16;
    float *values, *result, answer = 0;
    CHECK(hipMallocManaged(&values, kCount * sizeof(float)));
    CHECK(hipMalloc(&result, sizeof(float)));
    CHECK(hipMemset(result, 0, sizeof(float)));
    for (int i = 0; i < kCount; ++i) values[i] = 1.0f;
    set_product_scale(2.0f);
    square<<<1, kCount>>>(values);
    dot(values, values, result, kCount);
    CHECK(hipMemcpy(&answer, result, sizeof answer, hipMemcpyDeviceToHost));
    return verdict("static_library", answer != 8.0f * kCount);
}
