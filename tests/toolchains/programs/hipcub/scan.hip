#include "device.h"

#include <hipcub/hipcub.hpp>

#include <vector>

constexpr int kThreads = 128;

template <typename T, int kItems>
__global__ void block_sums(const T* input, T* output) {
    using Scan = hipcub::BlockScan<T, kThreads>;
    __shared__ typename Scan::TempStorage storage;
    T items[kItems];
    for (int i = 0; i < kItems; ++i) items[i] = input[threadIdx.x * kItems + i];
    Scan(storage).InclusiveSum(items, items);
    for (int i = 0; i < kItems; ++i) output[threadIdx.x * kItems + i] = items[i];
}

int main() {
    need_device();
    constexpr int kItems = 4, kCount = kThreads * kItems;
    std::vector<int> host(kCount, 1);
    int *input, *output, *total;
    CHECK(hipMalloc(&input, kCount * sizeof(int)));
    CHECK(hipMalloc(&output, kCount * sizeof(int)));
    CHECK(hipMalloc(&total, sizeof(int)));
    CHECK(hipMemcpy(input, host.data(), kCount * sizeof(int), hipMemcpyHostToDevice));
    hipLaunchKernelGGL((block_sums<int, kItems>), dim3(1), dim3(kThreads), 0, 0, input, output);

    void* temporary = nullptr;
    size_t size = 0;
    CHECK(hipcub::DeviceReduce::Sum(temporary, size, input, total, kCount));
    CHECK(hipMalloc(&temporary, size));
    CHECK(hipcub::DeviceReduce::Sum(temporary, size, input, total, kCount));
    int sum = 0;
    CHECK(hipMemcpy(&sum, total, sizeof(int), hipMemcpyDeviceToHost));
    CHECK(hipMemcpy(host.data(), output, kCount * sizeof(int), hipMemcpyDeviceToHost));
    int wrong = sum != kCount;
    for (int i = 0; i < kCount; ++i) wrong += host[i] != i + 1;
    return verdict("hipcub", wrong);
}
