/* A stand-in for CUDA's or HIP's runtime on the device STANDIN_DEVICE (sm_90, gfx90a), for programs
   with kernels of report.h. It loads the image that the runtime would of each fat binary or bundle;
   a kernel writes what stands behind the mark in that image. */
#ifdef HIP
#include <hip/hip_runtime_api.h>
#define GPU(name) hip##name
#define REGISTER(name) __hip##name
#define hipErrorSymbolNotFound hipErrorNotFound
#define hipErrorNoKernelImageForDevice hipErrorNoBinaryForGpu
#else
#include <cuda_runtime_api.h>
#define GPU(name) cuda##name
#define REGISTER(name) __cuda##name
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct image {
    const char *begin, *end;
    int arch;
};
static struct kernel {
    const void *function;
    const char *name;
    struct image *image;
} kernels[64], *launched;
static int count;
static GPU(Error_t) last;
static struct {
    dim3 grid, block;
    size_t shared;
    GPU(Stream_t) stream;
} pushed;

static GPU(Error_t) fail(GPU(Error_t) error) { return last = error; }

static const char *find(const struct image *image, const void *bytes, size_t size) {
    return image->begin ? memmem(image->begin, image->end - image->begin, bytes, size) : NULL;
}
#ifdef HIP
static void load(struct image *image, const char *bundle, const char *device) {
    struct entry {
        uint64_t offset, size, length;
        char id[];
    } const *each = (const void *)(bundle + 32);
    for (uint64_t left = *(const uint64_t *)(bundle + 24); left; --left) {
        const char *id = each->id + each->length - strlen(device);
        if (!memcmp(id, device, strlen(device)))
            *image = (struct image){bundle + each->offset, bundle + each->offset + each->size, 0};
        each = (const void *)(each->id + each->length);
    }
}
#else
static void load(struct image *image, const char *header, const char *device_name) {
    struct entry {
        uint16_t kind, version;
        uint32_t header_size;
        uint64_t size;
        uint32_t unknown[3], arch;
    };
    int device = atoi(device_name + 3);
    const char *at = header + 16, *end = at + *(const uint64_t *)(header + 8);
    for (const struct entry *each; at < end; at += each->header_size + each->size) {
        each = (const void *)at;
        int arch = each->arch;
        if (each->kind != 2 || arch / 10 != device / 10 || arch > device || arch < image->arch)
            continue;
        *image = (struct image){at + each->header_size, at + each->header_size + each->size, arch};
    }
}
#endif
void **REGISTER(RegisterFatBinary)(const void *wrapper) {
    struct image *image = calloc(1, sizeof *image);
    load(image, ((const char *const *)wrapper)[1], getenv("STANDIN_DEVICE"));
    return (void **)image;
}
void REGISTER(RegisterFatBinaryEnd)(void **handle) { (void)handle; }
void REGISTER(UnregisterFatBinary)(void **handle) { (void)handle; }
void REGISTER(RegisterVar)(void **handle) { (void)handle; }
void REGISTER(RegisterFunction)(void **handle, const char *function, char *device, const char *name) {
    (void)device;
    kernels[count++] = (struct kernel){function, name, (struct image *)handle};
}
unsigned REGISTER(PushCallConfiguration)(dim3 grid, dim3 block, size_t shared, GPU(Stream_t) stream) {
    pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = stream;
    return 0;
}
GPU(Error_t) REGISTER(PopCallConfiguration)(dim3 *grid, dim3 *block, size_t *shared,
                                            GPU(Stream_t) *stream) {
    *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared;
    *stream = pushed.stream;
    return GPU(Success);
}
static GPU(Error_t) find_kernel(const void *function) {
    for (launched = kernels; launched < kernels + count; ++launched)
        if (launched->function == function) break;
    if (launched == kernels + count) return fail(GPU(ErrorInvalidDeviceFunction));
    if (!launched->image->begin) return fail(GPU(ErrorNoKernelImageForDevice));
    if (!find(launched->image, launched->name, strlen(launched->name) + 1))
        return fail(GPU(ErrorSymbolNotFound));
    return GPU(Success);
}
GPU(Error_t) GPU(LaunchKernel)(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared, GPU(Stream_t) stream) {
    (void)grid, (void)block, (void)shared, (void)stream;
    GPU(Error_t) error = find_kernel(function);
    if (error) return error;
    const int mark = 0x0ff10ad5;
    const char *tag = find(launched->image, &mark, sizeof mark);
    if (!tag) return fail(GPU(ErrorLaunchFailure));
    memcpy(*(void **)arguments[0], tag + sizeof mark, 2 * sizeof(int));
    return GPU(Success);
}
#ifndef HIP
GPU(Error_t) cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    GPU(Error_t) error = find_kernel(function);
    if (!error) attributes->binaryVersion = launched->image->arch;
    return error;
}
#endif
GPU(Error_t) GPU(Malloc)(void **at, size_t size) { return *at = malloc(size), GPU(Success); }
GPU(Error_t) GPU(Free)(void *at) { return free(at), GPU(Success); }
GPU(Error_t) GPU(Memset)(void *at, int value, size_t size) {
    return memset(at, value, size), GPU(Success);
}
GPU(Error_t) GPU(Memcpy)(void *to, const void *from, size_t size, enum GPU(MemcpyKind) kind) {
    return (void)kind, memcpy(to, from, size), GPU(Success);
}
GPU(Error_t) GPU(DeviceSynchronize)(void) { return GPU(Success); }
GPU(Error_t) GPU(GetLastError)(void) {
    GPU(Error_t) error = last;
    last = GPU(Success);
    return error;
}
#define NAME(error) \
    if (code == GPU(error)) return #error
const char *GPU(GetErrorName)(GPU(Error_t) code) {
    NAME(ErrorInvalidDeviceFunction);
    NAME(ErrorNoKernelImageForDevice);
    NAME(ErrorSymbolNotFound);
    return "another error";
}
