#include "device.h"

#include <hip/hip_cooperative_groups.h>

namespace cg = cooperative_groups;

template <typename Tile>
__device__ int tile_sum(const Tile& tile, int value) {
    for (unsigned distance = tile.size() / 2; distance > 0; distance /= 2)
        value += tile.shfl_down(value, distance);
    return value;
}

__global__ void sum(const int* values, int* partial, int* total, int count) {
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    int mine = 0;
    for (int i = grid.thread_rank(); i < count; i += grid.size()) mine += values[i];
    auto tile = cg::tiled_partition<16>(block);
    int part = tile_sum(tile, mine);
    if (block.thread_rank() == 0) partial[blockIdx.x] = 0;
    block.sync();
    if (tile.thread_rank() == 0) atomicAdd(&partial[blockIdx.x], part);
    grid.sync();
    if (grid.thread_rank() == 0) {
        *total = 0;
        for (unsigned i = 0; i < gridDim.x; ++i) *total += partial[i];
    }
}

int main() {
    need_device();
    int count = 4096, blocks = 2;
    int *values, *partial, *total, answer = 0;
    CHECK(hipMallocManaged(&values, count * sizeof(int)));
    CHECK(hipMalloc(&partial, blocks * sizeof(int)));
    CHECK(hipMalloc(&total, sizeof(int)));
    for (int i = 0; i < count; ++i) values[i] = 1;
    void* arguments[] = {&values, &partial, &total, &count};
    CHECK(hipLaunchCooperativeKernel(reinterpret_cast<void*>(sum), dim3(blocks), dim3(128),
                                     arguments, 0, 0));
    CHECK(hipMemcpy(&answer, total, sizeof(int), hipMemcpyDeviceToHost));
    return verdict("cooperative", answer != count);
}
