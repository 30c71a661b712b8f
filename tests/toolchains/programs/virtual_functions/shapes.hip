// Objects that are made, used and destroyed on the device, through virtual functions.
#include "device.h"

#include <new>

struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    float side;
    __device__ explicit Square(float side) : side(side) {}
    __device__ float area() const override { return side * side; }
};
struct Rectangle final : Square {
    float other;
    __device__ Rectangle(float side, float other) : Square(side), other(other) {}
    __device__ float area() const override { return side * other; }
};
union Room {
    Square square;
    Rectangle rectangle;
    __device__ Room() {}
    __device__ ~Room() {}
};

__global__ void make(Shape** shapes, char* memory) {
    int i = threadIdx.x;
    void* place = memory + i * sizeof(Room);
    shapes[i] = i % 2 ? new (place) Rectangle(i, 2) : new (place) Square(i);
}
__global__ void measure(Shape* const* shapes, float* areas) {
    areas[threadIdx.x] = shapes[threadIdx.x]->area();
}
__global__ void destroy(Shape** shapes) { shapes[threadIdx.x]->~Shape(); }

int main() {
    need_device();
    constexpr int kCount = 32;
    Shape** shapes;
    char* memory;
    float *areas, host[kCount];
    CHECK(hipMalloc(&shapes, kCount * sizeof(Shape*)));
    CHECK(hipMalloc(&memory, kCount * sizeof(Room)));
    CHECK(hipMalloc(&areas, sizeof host));
    make<<<1, kCount>>>(shapes, memory);
    measure<<<1, kCount>>>(shapes, areas);
    destroy<<<1, kCount>>>(shapes);
    CHECK(hipMemcpy(host, areas, sizeof host, hipMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < kCount; ++i) wrong += host[i] != (i % 2 ? i * 2.0f : float(i) * i);
    return verdict("virtual_functions", wrong);
}
