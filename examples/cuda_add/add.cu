// c = a + b on the GPU. The program says what it did: it computes and checks where there is
// a CUDA device, and reports that there is none where there is not.
#include <cstdio>
#include <vector>

#include "cuda_declarations.h"

constexpr int kBlock = 256;

__global__ void add(int n, const float* a, const float* b, float* c) {
    int i = __nvvm_read_ptx_sreg_ctaid_x() * kBlock + __nvvm_read_ptx_sreg_tid_x();
    if (i < n) c[i] = a[i] + b[i];
}

static int run_on_device(int n) {
    std::vector<float> a(n), b(n), c(n);
    for (int i = 0; i < n; ++i) a[i] = i, b[i] = 2 * i;
    std::size_t size = n * sizeof(float);
    void *device_a = nullptr, *device_b = nullptr, *device_c = nullptr;
    for (void** pointer : {&device_a, &device_b, &device_c}) {
        if (cudaMalloc(pointer, size) != cudaSuccess) {
            std::puts("add: no device memory");
            return 1;
        }
    }
    cudaMemcpy(device_a, a.data(), size, cudaMemcpyHostToDevice);
    cudaMemcpy(device_b, b.data(), size, cudaMemcpyHostToDevice);
    add<<<dim3((n + kBlock - 1) / kBlock), dim3(kBlock)>>>(
        n, static_cast<const float*>(device_a), static_cast<const float*>(device_b),
        static_cast<float*>(device_c));
    cudaError_t error = cudaDeviceSynchronize();
    cudaMemcpy(c.data(), device_c, size, cudaMemcpyDeviceToHost);
    for (void* pointer : {device_a, device_b, device_c}) cudaFree(pointer);

    int wrong = 0;
    for (int i = 0; i < n; ++i) wrong += c[i] != 3 * i;
    std::printf("add: %d of %d values wrong, %s\n", wrong, n, cudaGetErrorString(error));
    return wrong != 0 || error != cudaSuccess;
}

int main() {
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        std::printf("add: no CUDA device (%s); the kernel was not run\n",
                    cudaGetErrorString(error));
        return 0;
    }
    return run_on_device(100000);
}
