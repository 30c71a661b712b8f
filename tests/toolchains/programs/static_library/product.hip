#include "device.h"
#include "dot.h"

__device__ float product_scale = 1.0f;

__device__ float product(float a, float b) { return product_scale * a * b; }

// A member of an archive takes part in a program where the host asks for something of it.
void set_product_scale(float value) {
    CHECK(hipMemcpyToSymbol(HIP_SYMBOL(product_scale), &value, sizeof value));
}
