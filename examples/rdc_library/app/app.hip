// Uses the device functions of the library, from a kernel of its own.
#include <cstdio>

#include "geometry.h"

__global__ void measure(const float* xyz, float* result) {
    *result = scaled(length_squared(xyz[0], xyz[1], xyz[2]));
}

int main() {
    int devices = 0;
    hipError_t error = hipGetDeviceCount(&devices);
    if (error != hipSuccess || devices == 0) {
        std::printf("app: no HIP device (%s); the kernel was not run\n", hipGetErrorString(error));
        return 0;
    }
    float xyz[3] = {1.0f, 2.0f, 2.0f}, result = 0.0f;
    void *device_xyz = nullptr, *device_result = nullptr;
    if (hipMalloc(&device_xyz, sizeof xyz) != hipSuccess ||
        hipMalloc(&device_result, sizeof result) != hipSuccess) {
        std::puts("app: no device memory");
        return 1;
    }
    hipMemcpy(device_xyz, xyz, sizeof xyz, hipMemcpyHostToDevice);
    measure<<<dim3(1), dim3(1)>>>(static_cast<const float*>(device_xyz),
                                  static_cast<float*>(device_result));
    hipDeviceSynchronize();
    hipMemcpy(&result, device_result, sizeof result, hipMemcpyDeviceToHost);
    std::printf("app: %g, %d value scaled\n", result, values_scaled());
    return values_scaled() != 1;
}
