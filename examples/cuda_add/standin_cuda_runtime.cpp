// A STAND-IN for the CUDA runtime (libcudart), for machines without a toolkit: it takes the
// registration of the program's fat binary, prints what it was given, and answers every
// call as the real runtime does where there is no GPU. It never runs a kernel.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "cuda_declarations.h"

namespace {

constexpr std::uint32_t kWrapperMagic = 0x466243b1;
constexpr std::uint32_t kFatBinaryMagic = 0xba55ed50;

struct FatBinaryWrapper {
    std::uint32_t magic;
    std::uint32_t version;
    const char* binary;
    void* unused;
};

struct FatBinaryHeader {
    std::uint32_t magic;
    std::uint16_t version, header_size;
    std::uint64_t size;  // of all entries
};

struct Entry {
    std::uint16_t kind, version;  // kind 1: PTX, 2: cubin
    std::uint32_t header_size;
    std::uint64_t size;
    std::uint32_t unused[3];
    std::uint32_t processor;  // 80: sm_80
};

void print_entries(const char* at, std::uint64_t size) {
    for (const char* end = at + size; at < end;) {
        Entry entry;
        std::memcpy(&entry, at, sizeof entry);
        std::printf("  %s for sm_%u: %llu bytes\n", entry.kind == 1 ? "PTX" : "cubin",
                    entry.processor, static_cast<unsigned long long>(entry.size));
        at += entry.header_size + entry.size;
    }
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(const void* data) {
    auto wrapper = static_cast<const FatBinaryWrapper*>(data);
    FatBinaryHeader header;
    std::memcpy(&header, wrapper->binary, sizeof header);
    if (wrapper->magic != kWrapperMagic || header.magic != kFatBinaryMagic) {
        std::puts("stand-in CUDA runtime: what was registered is no fat binary");
        return nullptr;
    }
    std::puts("stand-in CUDA runtime: fat binary registered");
    print_entries(wrapper->binary + header.header_size, header.size);
    static void* handle;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaRegisterFunction(void**, const void*, char*, const char* name, int, void*, void*,
                            void*, void*, int*) {
    std::printf("stand-in CUDA runtime: kernel registered: %s\n", name);
}

void __cudaUnregisterFatBinary(void**) {}

unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, cudaStream_t) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) { return cudaSuccess; }
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
    return cudaErrorNoDevice;
}
cudaError_t cudaGetDeviceCount(int* count) {
    *count = 0;
    return cudaErrorNoDevice;
}
const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : "no CUDA-capable device is detected";
}
cudaError_t cudaMalloc(void**, std::size_t) { return cudaErrorNoDevice; }
cudaError_t cudaFree(void*) { return cudaErrorNoDevice; }
cudaError_t cudaMemcpy(void*, const void*, std::size_t, cudaMemcpyKind) {
    return cudaErrorNoDevice;
}
cudaError_t cudaDeviceSynchronize(void) { return cudaErrorNoDevice; }
}
