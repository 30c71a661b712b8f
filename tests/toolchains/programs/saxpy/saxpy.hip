#include "device.h"
#include "saxpy.h"

#include <vector>

__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

int run_saxpy(int n) {
    std::vector<float> x(n, 3.0f), y(n, 1.0f);
    float *device_x, *device_y;
    CHECK(hipMalloc(&device_x, n * sizeof(float)));
    CHECK(hipMalloc(&device_y, n * sizeof(float)));
    CHECK(hipMemcpy(device_x, x.data(), n * sizeof(float), hipMemcpyHostToDevice));
    CHECK(hipMemcpy(device_y, y.data(), n * sizeof(float), hipMemcpyHostToDevice));
    saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, device_x, device_y);
    CHECK(hipMemcpy(y.data(), device_y, n * sizeof(float), hipMemcpyDeviceToHost));
    CHECK(hipFree(device_x));
    CHECK(hipFree(device_y));
    int wrong = 0;
    for (float value : y) wrong += value != 7.0f;
    return wrong;
}
