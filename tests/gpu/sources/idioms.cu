// What nvcc accepts and NVIDIA's linkers refuse of clang: see formats/cuda/ptx_declarations.py.
#include "report.h"
UNIT(idioms)
static __device__ int first = 40, second = 2;
static __device__ int *const table[] = {&first, &second};
__global__ void here() { first += *table[1]; }  // device code uses the variable before host code
__global__ void there(int *value);              // of the other source
int main() {
    report("idioms", idioms);
    here<<<1, 1>>>();
    CHECK(GetLastError());
    int value = 0, *device;
    CHECK(MemcpyFromSymbol(&value, SYMBOL(first), sizeof value));
    printf("here %d\n", value);
    CHECK(Malloc((void **)&device, sizeof value));
    there<<<1, 1>>>(device);
    CHECK(GetLastError());
    CHECK(Memcpy(&value, device, sizeof value, gpu(MemcpyDeviceToHost)));
    printf("there %d\n", value);
    return 0;
}
