#include "linked.h"
static __device__ int own = 10000;
int own_of_two() {
    int value = 0;
    CHECK(MemcpyFromSymbol(&value, SYMBOL(own), sizeof value));
    return value;
}
__device__ int from_two(int x) {
    own += 10000;
    return from_one(x) + own;
}
