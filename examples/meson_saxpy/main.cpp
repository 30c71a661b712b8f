// 3 * (2 * x + y) on the GPU. The program says what it did: it computes and checks where
// there is a HIP device, and reports that there is none where there is not.
#include <cstdio>
#include <vector>

#include "kernels.h"

int main() {
    int devices = 0, n = 100000, wrong = 0;
    hipError_t error = hipGetDeviceCount(&devices);
    if (error != hipSuccess || devices == 0) {
        std::printf("saxpy: no HIP device (%s); no kernel was run\n", hipGetErrorString(error));
        return 0;
    }
    std::vector<float> x(n, 3.0f), y(n, 1.0f);
    std::size_t size = n * sizeof(float);
    void *device_x = nullptr, *device_y = nullptr;
    if (hipMalloc(&device_x, size) != hipSuccess || hipMalloc(&device_y, size) != hipSuccess) {
        std::puts("saxpy: no device memory");
        return 1;
    }
    hipMemcpy(device_x, x.data(), size, hipMemcpyHostToDevice);
    hipMemcpy(device_y, y.data(), size, hipMemcpyHostToDevice);
    saxpy(n, 2.0f, static_cast<const float*>(device_x), static_cast<float*>(device_y));
    scale(n, 3.0f, static_cast<float*>(device_y));
    error = hipDeviceSynchronize();
    hipMemcpy(y.data(), device_y, size, hipMemcpyDeviceToHost);
    hipFree(device_x);
    hipFree(device_y);
    for (float value : y) wrong += value != 21.0f;
    std::printf("saxpy: %d of %d values wrong, %s\n", wrong, n, hipGetErrorString(error));
    return wrong != 0 || error != hipSuccess;
}
