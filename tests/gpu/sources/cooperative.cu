// A grid whose blocks wait for each other.
#include "report.h"
#include <cooperative_groups.h>
UNIT(cooperative)
__global__ void rounds(int *values) {
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    for (int round = 0; round < 3; ++round) {
        int sum = 0;
        for (unsigned i = 0; i < gridDim.x; ++i) sum += values[i];
        grid.sync();
        if (threadIdx.x == 0) values[blockIdx.x] = sum;
        grid.sync();
    }
}
int main() {
    report("cooperative", cooperative);
    int *values, host[4] = {1, 2, 3, 4};
    CHECK(Malloc((void **)&values, sizeof host));
    CHECK(Memcpy(values, host, sizeof host, gpu(MemcpyHostToDevice)));
    void *arguments[] = {&values};
    CHECK(LaunchCooperativeKernel((const void *)rounds, dim3(4), dim3(32), arguments, 0, 0));
    CHECK(DeviceSynchronize());
    CHECK(Memcpy(host, values, sizeof host, gpu(MemcpyDeviceToHost)));
    printf("rounds %d %d\n", host[0], host[3]);
    return 0;
}
