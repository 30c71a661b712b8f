#include "device.h"
#include "forces.h"

__constant__ float time_step = 0.25f;

void set_time_step(float value) {
    CHECK(hipMemcpyToSymbol(HIP_SYMBOL(time_step), &value, sizeof value));
}
