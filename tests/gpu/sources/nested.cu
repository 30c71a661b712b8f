// A kernel that starts kernels.
#include "report.h"
UNIT(nested)
__device__ int sum;
__global__ void leaf(int weight) { atomicAdd(&sum, weight * (threadIdx.x + 1)); }
__global__ void root() { leaf<<<2, 4>>>(threadIdx.x + 1); }
int main() {
    report("nested", nested);
    root<<<1, 3>>>();
    CHECK(GetLastError());
    CHECK(DeviceSynchronize());
    int value = 0;
    CHECK(MemcpyFromSymbol(&value, SYMBOL(sum), sizeof value));
    printf("sum %d\n", value);  // 2 blocks * (1 + 2 + 3 + 4) * (1 + 2 + 3)
    return 0;
}
