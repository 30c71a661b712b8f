// y = a * y on the GPU.
#include <hip_declarations.h>

#include "kernels.h"

constexpr int kBlock = 256;

__global__ void scale_kernel(int n, float a, float* y) {
    int i = __builtin_amdgcn_workgroup_id_x() * kBlock + __builtin_amdgcn_workitem_id_x();
    if (i < n) y[i] *= a;
}

void scale(int n, float a, float* y) {
    scale_kernel<<<dim3((n + kBlock - 1) / kBlock), dim3(kBlock)>>>(n, a, y);
}
