// Managed variables are registered with their initial values, on both sides one name.
#include "device.h"

__managed__ int counter = 3;
__managed__ float table[4];

__global__ void count() {
    atomicAdd(&counter, 1);
    table[threadIdx.x % 4] = 1.0f;
}

int main() {
    need_device();
    count<<<1, 8>>>();
    CHECK(hipDeviceSynchronize());
    return verdict("managed", (counter != 11) + (table[3] != 1.0f));
}
