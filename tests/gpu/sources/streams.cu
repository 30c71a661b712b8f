// Each thread has a default stream: a kernel of one waits for a kernel of the other.
#include "report.h"
#include <pthread.h>
UNIT(streams)
__global__ void wait(volatile int *flags) {
    for (long long begin = clock64(); !flags[0] && clock64() - begin < 4000000000ll;) {}
    flags[1] = flags[0] + 1;
}
__global__ void set(volatile int *flags) { flags[0] = 1; }
static void *start_waiting(void *flags) {
    wait<<<1, 1>>>((int *)flags);
    CHECK(GetLastError());
    return nullptr;
}
int main() {
    report("streams", streams);
    int *flags;
    CHECK(HostAlloc((void **)&flags, 2 * sizeof(int), cudaHostAllocMapped));
    flags[0] = flags[1] = 0;
    set<<<1, 1>>>(flags + 1);  // loads the module, which waits for kernels that run
    CHECK(DeviceSynchronize());
    flags[1] = 0;
    pthread_t thread;
    pthread_create(&thread, nullptr, start_waiting, flags);
    pthread_join(thread, nullptr);
    set<<<1, 1>>>(flags);
    CHECK(DeviceSynchronize());
    puts(flags[1] == 2 ? "the second one ran" : "the second one waited for the first");
    return 0;
}
