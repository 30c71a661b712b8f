#include "linked.h"
UNIT(linked)
__device__ int answer;
__global__ void evaluate(int x) { answer = from_two(x); }
int main() {
    report("linked", linked);
    set_offset(5);
    evaluate<<<1, 1>>>(2);
    CHECK(GetLastError());
    CHECK(DeviceSynchronize());
    int value = 0;
    CHECK(MemcpyFromSymbol(&value, SYMBOL(answer), sizeof value));
    printf("answer %d, %d evaluated, own %d and %d\n", value, count_evaluations(), own_of_one(),
           own_of_two());
    return 0;
}
