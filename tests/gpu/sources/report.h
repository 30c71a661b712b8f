// What the CUDA and HIP programs of the suite share: a line for each kernel says which image ran.
#pragma once
#ifdef __HIP__
#include <hip/hip_runtime.h>
#define gpu(name) hip##name
#define SYMBOL(variable) HIP_SYMBOL(variable)
#else
#include <cuda_runtime.h>
#define gpu(name) cuda##name
#define SYMBOL(variable) variable
#endif
#include <stdio.h>
#include <stdlib.h>

#if !defined TARGET && defined __CUDA_ARCH__  // The SConstruct defines it: 80 for sm_80,
#define TARGET (__CUDA_ARCH__ / 10)
#elif !defined TARGET  // and 0x90a for gfx90a.
#define TARGET 0
#endif
#ifndef VERSION
#error "VERSION is that of the sources, by which the image of an older one is known"
#endif

#define CHECK(call) check(gpu(call), #call)
static inline void check(gpu(Error_t) error, const char *call) {
    if (error == gpu(Success)) return;
    printf("%s: %s\n", call, gpu(GetErrorName)(error));
    fflush(stdout);
    exit(1);
}

// A kernel that writes the target and the version that its image has in memory. The number before
// them is a mark, by which a stand-in for the runtime finds them in a file.
#define UNIT(name)                                                       \
    __device__ int name##_tag[3] = {0x0ff10ad5, TARGET, VERSION};        \
    __global__ void name(int *out) {                                     \
        out[0] = name##_tag[1];                                          \
        out[1] = name##_tag[2];                                          \
    }

static inline void print_line(const char *unit, const int *said, const void *kernel) {
    int binary = 0;
#ifndef __HIP__
    cudaFuncAttributes attributes;
    CHECK(FuncGetAttributes(&attributes, kernel));
    binary = attributes.binaryVersion;
#endif
    printf("%s: target %d binary %d version %d\n", unit, said[0], binary, said[1]);
    fflush(stdout);
}

static inline void report(const char *unit, void (*kernel)(int *)) {
    int *device, said[2] = {-1, -1};
    CHECK(Malloc((void **)&device, sizeof said));
    CHECK(Memset(device, 0xff, sizeof said));
    kernel<<<1, 1>>>(device);
    CHECK(GetLastError());
    CHECK(DeviceSynchronize());
    CHECK(Memcpy(said, device, sizeof said, gpu(MemcpyDeviceToHost)));
    CHECK(Free(device));
    print_line(unit, said, (const void *)kernel);
}

// A kernel, and the function that starts it, for programs of several objects or libraries.
#define RUN(name) \
    UNIT(name)    \
    extern "C" __attribute__((visibility("default"))) void run_##name() { report(#name, name); }
