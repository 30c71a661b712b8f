// printf and assert on the device need the device libraries and the host's hostcall services.
#undef NDEBUG
#include "device.h"

#include <cassert>

__global__ void talk(const char* text, int limit) {
    assert(int(threadIdx.x) < limit && "more threads than were announced");
    if (threadIdx.x == 0) printf("device %d: %c %s %.2f\n", int(blockIdx.x), text[0], "says", 0.5);
}

int main() {
    need_device();
    char* text;
    CHECK(hipMallocManaged(&text, 2));
    text[0] = 'x', text[1] = 0;
    talk<<<2, 64>>>(text, 64);
    CHECK(hipDeviceSynchronize());
    return verdict("printf_assert", 0);
}
