// Plain C++ that loads device code when it runs: modules.hipfb beside it.
#include <hip/hip_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                       \
    do {                                                                  \
        hipError_t error_ = (call);                                       \
        if (error_ != hipSuccess) {                                       \
            std::printf("%s: %s\n", #call, hipGetErrorString(error_));    \
            std::exit(1);                                                 \
        }                                                                 \
    } while (0)

int main() {
    hipModule_t module;
    hipError_t error = hipModuleLoad(&module, "kernels.hipfb");
    if (error == hipErrorNoDevice) {
        std::printf("no HIP device (%s)\n", hipGetErrorString(error));
        return 0;
    }
    CHECK(error);
    hipFunction_t shift;
    CHECK(hipModuleGetFunction(&shift, module, "shift"));
    float *values, host[64] = {};
    CHECK(hipMalloc(reinterpret_cast<void**>(&values), sizeof host));
    CHECK(hipMemcpy(values, host, sizeof host, hipMemcpyHostToDevice));
    void* arguments[] = {&values};
    CHECK(hipModuleLaunchKernel(shift, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK(hipMemcpy(host, values, sizeof host, hipMemcpyDeviceToHost));
    CHECK(hipModuleUnload(module));
    int wrong = 0;
    for (float value : host) wrong += value != 1.0f;
    std::printf("modules: %d wrong\n", wrong);
    return wrong != 0;
}
