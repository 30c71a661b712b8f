#include "linked.h"
__constant__ int offset = 1;
__device__ int evaluations;
static __device__ int own = 100;  // each file has one of this name
int own_of_one() {
    int value = 0;
    CHECK(MemcpyFromSymbol(&value, SYMBOL(own), sizeof value));
    return value;
}
__device__ int from_one(int x) {
    atomicAdd(&evaluations, 1);
    return x + offset + own++;
}
void set_offset(int value) { CHECK(MemcpyToSymbol(SYMBOL(offset), &value, sizeof value)); }
int count_evaluations() {
    int value = 0;
    CHECK(MemcpyFromSymbol(&value, SYMBOL(evaluations), sizeof value));
    return value;
}
