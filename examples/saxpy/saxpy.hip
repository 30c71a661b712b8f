// y = a * x + y on the GPU. The program says what it did: it computes and checks where
// there is a HIP device, and reports that there is none where there is not.
#include <cstdio>

#include "hip_declarations.h"

constexpr int kBlock = 256, kCount = 100000;

__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = __builtin_amdgcn_workgroup_id_x() * kBlock + __builtin_amdgcn_workitem_id_x();
    if (i < n) y[i] = a * x[i] + y[i];
}

static int run_on_device() {
    static float x[kCount], y[kCount];
    for (float& value : x) value = 3.0f;
    for (float& value : y) value = 1.0f;
    void *device_x = nullptr, *device_y = nullptr;
    if (hipMalloc(&device_x, sizeof x) != hipSuccess ||
        hipMalloc(&device_y, sizeof y) != hipSuccess) {
        std::puts("saxpy: no device memory");
        return 1;
    }
    hipMemcpy(device_x, x, sizeof x, hipMemcpyHostToDevice);
    hipMemcpy(device_y, y, sizeof y, hipMemcpyHostToDevice);
    saxpy<<<dim3((kCount + kBlock - 1) / kBlock), dim3(kBlock)>>>(
        kCount, 2.0f, static_cast<const float*>(device_x), static_cast<float*>(device_y));
    hipError_t error = hipDeviceSynchronize();
    hipMemcpy(y, device_y, sizeof y, hipMemcpyDeviceToHost);
    hipFree(device_x);
    hipFree(device_y);

    int wrong = 0;
    for (float value : y) wrong += value != 7.0f;
    std::printf("saxpy: %d of %d values wrong, %s\n", wrong, kCount, hipGetErrorString(error));
    return wrong != 0 || error != hipSuccess;
}

int main() {
    int devices = 0;
    hipError_t error = hipGetDeviceCount(&devices);
    if (error != hipSuccess || devices == 0) {
        std::printf("saxpy: no HIP device (%s); the kernel was not run\n",
                    hipGetErrorString(error));
        return 0;
    }
    return run_on_device();
}
