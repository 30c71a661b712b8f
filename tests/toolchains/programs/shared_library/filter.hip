#include "device.h"
#include "filter.h"

__device__ int calls;

__global__ void clamp(float* values, int count, float limit) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && values[i] > limit) values[i] = limit;
    if (i == 0) ++calls;
}

void clamp_values(float* values, int count, float limit) {
    clamp<<<(count + 63) / 64, 64>>>(values, count, limit);
}

int clamp_calls() {
    int answer = 0;
    CHECK(hipMemcpyFromSymbol(&answer, HIP_SYMBOL(calls), sizeof answer));
    return answer;
}
