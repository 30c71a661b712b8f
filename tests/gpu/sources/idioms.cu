// What nvcc accepts and NVIDIA's linkers refuse of clang: see formats/cuda/ptx.py.
#include "report.h"
#include <new>
UNIT(idioms)
static __device__ int first = 40, second = 2;
static __device__ int *const table[] = {&first, &second};
__global__ void here() { first += *table[1]; }  // device code uses the variable before host code
__global__ void there(int *value);              // of the other source

extern "C" __device__ void __cxa_pure_virtual() { __trap(); }
struct Shape {
    __device__ virtual int area() const = 0;
    __device__ virtual ~Shape() {}
};
struct Rectangle : Shape {
    int width, height;
    __device__ Rectangle(int width, int height) : width(width), height(height) {}
    __device__ int area() const override { return width * height; }
};
__global__ void allocate(int *out, int width, int height) {
    Shape *shape = new Rectangle(width, height);
    *out = shape->area();
    delete shape;
}

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
    allocate<<<1, 1>>>(device, 5, 6);
    CHECK(GetLastError());
    CHECK(Memcpy(&value, device, sizeof value, gpu(MemcpyDeviceToHost)));
    printf("new %d\n", value);
    return 0;
}
