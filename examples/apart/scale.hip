#include "hip_declarations.h"

__global__ void scale(float *values, float by) {
  values[__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x()] *= by;
}
