// What all programs share: is there a device, and what to do when a call of the runtime fails.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                     \
    do {                                                                                \
        hipError_t error_ = (call);                                                     \
        if (error_ != hipSuccess) {                                                     \
            std::printf("%s:%d: %s\n", __FILE__, __LINE__, hipGetErrorString(error_));  \
            std::exit(1);                                                               \
        }                                                                               \
    } while (0)

// Ends the program where there is no GPU: registration is over, and nothing can be computed.
inline void need_device() {
    int devices = 0;
    hipError_t error = hipGetDeviceCount(&devices);
    if (error == hipSuccess && devices > 0) return;
    std::printf("no HIP device (%s)\n", hipGetErrorString(error));
    std::exit(0);
}

inline int verdict(const char* name, int wrong) {
    std::printf("%s: %d wrong\n", name, wrong);
    return wrong != 0;
}
