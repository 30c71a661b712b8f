// c = a + b on the GPU. The program says what it did: it computes and checks where there is
// a CUDA device, and reports that there is none where there is not.
#include <cstdio>
#include <initializer_list>

#include "cuda_declarations.h"

constexpr int kBlock = 256, kCount = 100000;

__global__ void add(int n, const float* a, const float* b, float* c) {
    int i = __nvvm_read_ptx_sreg_ctaid_x() * kBlock + __nvvm_read_ptx_sreg_tid_x();
    if (i < n) c[i] = a[i] + b[i];
}

static int run_on_device() {
    static float a[kCount], b[kCount], c[kCount];
    for (int i = 0; i < kCount; ++i) a[i] = i, b[i] = 2 * i;
    void *device_a = nullptr, *device_b = nullptr, *device_c = nullptr;
    for (void** pointer : {&device_a, &device_b, &device_c}) {
        if (cudaMalloc(pointer, sizeof a) != cudaSuccess) {
            std::puts("add: no device memory");
            return 1;
        }
    }
    cudaMemcpy(device_a, a, sizeof a, cudaMemcpyHostToDevice);
    cudaMemcpy(device_b, b, sizeof b, cudaMemcpyHostToDevice);
    add<<<dim3((kCount + kBlock - 1) / kBlock), dim3(kBlock)>>>(
        kCount, static_cast<const float*>(device_a), static_cast<const float*>(device_b),
        static_cast<float*>(device_c));
    cudaError_t error = cudaDeviceSynchronize();
    cudaMemcpy(c, device_c, sizeof c, cudaMemcpyDeviceToHost);
    for (void* pointer : {device_a, device_b, device_c}) cudaFree(pointer);

    int wrong = 0;
    for (int i = 0; i < kCount; ++i) wrong += c[i] != 3 * i;
    std::printf("add: %d of %d values wrong, %s\n", wrong, kCount, cudaGetErrorString(error));
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
    return run_on_device();
}
