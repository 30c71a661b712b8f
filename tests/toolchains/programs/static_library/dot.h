#pragma once
#include <hip/hip_runtime.h>
__device__ float product(float a, float b);
void dot(const float* a, const float* b, float* result, int count);
void set_product_scale(float value);
