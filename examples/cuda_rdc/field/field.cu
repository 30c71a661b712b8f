#include "field.cuh"

__constant__ Field field;
__device__ unsigned evaluations;

void set_field(Field value) { cudaMemcpyToSymbol(field, &value, sizeof value); }

unsigned count_evaluations() {
    unsigned count = 0;
    cudaMemcpyFromSymbol(&count, evaluations, sizeof count);
    return count;
}
