#include "device.h"

#include <rocprim/rocprim.hpp>

#include <vector>

int largest(int* values, unsigned count);

static std::vector<int> sorted(int* values, unsigned count) {
    int* output;
    void* temporary = nullptr;
    size_t size = 0;
    CHECK(hipMalloc(&output, count * sizeof(int)));
    CHECK(rocprim::radix_sort_keys(temporary, size, values, output, count));
    CHECK(hipMalloc(&temporary, size));
    CHECK(rocprim::radix_sort_keys(temporary, size, values, output, count));
    std::vector<int> answer(count);
    CHECK(hipMemcpy(answer.data(), output, count * sizeof(int), hipMemcpyDeviceToHost));
    CHECK(hipFree(temporary));
    CHECK(hipFree(output));
    return answer;
}

int main() {
    need_device();
    const unsigned count = 10000;
    std::vector<int> host(count);
    for (unsigned i = 0; i < count; ++i) host[i] = (i * 7919) % count;
    int* values;
    CHECK(hipMalloc(&values, count * sizeof(int)));
    CHECK(hipMemcpy(values, host.data(), count * sizeof(int), hipMemcpyHostToDevice));
    int wrong = largest(values, count) != int(count) - 1;
    std::vector<int> answer = sorted(values, count);
    for (unsigned i = 0; i < count; ++i) wrong += answer[i] != int(i);
    CHECK(hipFree(values));
    return verdict("primitives", wrong);
}
