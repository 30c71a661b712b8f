// Sorts numbers with Thrust and sums them up with CUB and with a kernel. It checks the result
// where there is a CUDA device, and says that there is none where there is not.
#include <cstdio>
#include <vector>

#include <cub/device/device_reduce.cuh>
#include <thrust/device_vector.h>
#include <thrust/sort.h>

constexpr int kBlock = 256;
__constant__ int factor;

__global__ void multiply(int n, int* values) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= factor;
}

static long sum_of(thrust::device_vector<int>& values) {
    thrust::device_vector<long> sum(1);
    std::size_t size = 0;
    int count = static_cast<int>(values.size());
    cub::DeviceReduce::Sum(nullptr, size, values.begin(), sum.begin(), count);
    thrust::device_vector<char> room(size);
    cub::DeviceReduce::Sum(thrust::raw_pointer_cast(room.data()), size, values.begin(),
                           sum.begin(), count);
    return sum[0];
}

static int run_on_device(int n) {
    std::vector<int> numbers(n);
    for (int i = 0; i < n; ++i) numbers[i] = static_cast<int>(i * 7919L % n);
    thrust::device_vector<int> values(numbers.begin(), numbers.end());
    thrust::sort(values.begin(), values.end());

    int twice = 2;
    cudaMemcpyToSymbol(factor, &twice, sizeof twice);
    multiply<<<(n + kBlock - 1) / kBlock, kBlock>>>(n, thrust::raw_pointer_cast(values.data()));
    cudaError_t error = cudaDeviceSynchronize();

    long sum = sum_of(values), expected = static_cast<long>(n) * (n - 1);
    int wrong = 0;
    for (int i = 0; i < n; i += n / 100) wrong += values[i] != 2 * i;
    std::printf("sorted: %d values wrong, sum %ld, expected %ld, %s\n", wrong, sum, expected,
                cudaGetErrorString(error));
    return wrong != 0 || sum != expected || error != cudaSuccess;
}

int main() {
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        std::printf("sorted: no CUDA device (%s); nothing was run\n", cudaGetErrorString(error));
        return 0;
    }
    return run_on_device(100000);
}
