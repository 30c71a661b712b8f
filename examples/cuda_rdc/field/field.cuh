// What the library offers: to device code of other files, and to the host.
#pragma once

#include <cuda_runtime.h>

struct Field {
    float amplitude;
    float scale;
};

extern __constant__ Field field;
extern __device__ unsigned evaluations;

__device__ float wave(float x);

void set_field(Field value);
unsigned count_evaluations();
