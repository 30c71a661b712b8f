// y = a * x + y on the GPU.
#include <hip_declarations.h>

#include "kernels.h"

constexpr int kBlock = 256;

__global__ void saxpy_kernel(int n, float a, const float* x, float* y) {
    int i = __builtin_amdgcn_workgroup_id_x() * kBlock + __builtin_amdgcn_workitem_id_x();
    if (i < n) y[i] = a * x[i] + y[i];
}

void saxpy(int n, float a, const float* x, float* y) {
    saxpy_kernel<<<dim3((n + kBlock - 1) / kBlock), dim3(kBlock)>>>(n, a, x, y);
}
