// Libraries with equal names: the kernel, the static device variable, the function that starts it.
#include "report.h"
static __device__ int calls = START;
static int count_calls() {  // before the kernel: clang asks for it in relocatable code
    int value = 0;
    CHECK(MemcpyFromSymbol(&value, SYMBOL(calls), sizeof value));
    return value;
}
__global__ void plugin(int *out) {
    out[0] = TARGET;
    out[1] = calls++;
}
extern "C" __attribute__((visibility("default"))) void run_plugin(const char *unit) {
    report(unit, plugin);
    printf("%s: the host reads %d\n", unit, count_calls());
}
