#pragma once
#include <hip/hip_runtime.h>

struct Particle {
    float position, speed;
};

extern __constant__ float time_step;    // defined in constants.hip
extern __device__ unsigned steps_done;  // defined in forces.hip
__device__ float force(float position);
void set_time_step(float value);
