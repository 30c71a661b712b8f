/* Counts what a program registers with the CUDA runtime, and passes every call on to it.
 *
 * Preloaded (LD_PRELOAD) into a program that is linked with the real libcudart.so, which takes
 * the registrations whether there is a GPU or not. One line for each call is appended to the
 * file that COUNT_REGISTRATIONS names:
 *
 *     binary <number> <kind processor>... | <kind processor>... |    a fat binary, numbered from
 *                                      0: its images, and those of each source linked into it
 *     function <number> <name>                     a kernel, of which fat binary
 *     variable <number> <name> <size in bytes>     a device variable
 *     managed <number> <name> <size in bytes>      a managed variable
 *     surface <number> <name>
 *     texture <number> <name>
 *     end <number>                                 all of that fat binary was registered
 *
 * A fat binary whose wrapper or content has another magic has one image, "unknown".
 * Layouts: fatbinary_section.h of CUDA (the wrapper) and formats/cuda_fatbin.py.
 */
#define _GNU_SOURCE
#include "counting.h"

enum { WRAPPER_MAGIC = 0x466243b1, LINKED = 2 };
enum { HEADER = 16, PTX = 1, CUBIN = 2 };

struct fat_binary_wrapper {
    uint32_t magic;
    uint32_t version;
    const char *binary;
    const char *const *sources;
};

static void say_images(const char *binary) {
    uint64_t size = read_bytes(binary + 8, 8);
    if (read_bytes(binary, 4) != 0xBA55ED50) {
        say(" unknown");
        return;
    }
    for (const char *at = binary + HEADER; at < binary + HEADER + size;) {
        unsigned kind = read_bytes(at, 2), processor = read_bytes(at + 28, 4);
        const char *name = kind == PTX ? "compute" : kind == CUBIN ? "sm" : "unknown";
        say(" %s_%u", name, processor);
        at += read_bytes(at + 4, 4) + read_bytes(at + 8, 8);
    }
}

void **__cudaRegisterFatBinary(const void *data) {
    void **(*next)(const void *) = runtime("__cudaRegisterFatBinary");
    const struct fat_binary_wrapper *wrapper = data;
    void **handle = numbered(next(data));
    if (wrapper->magic != WRAPPER_MAGIC) {
        say(" unknown\n");
        return handle;
    }
    say_images(wrapper->binary);
    for (int i = 0; wrapper->version == LINKED && wrapper->sources[i]; ++i) {
        say(" |");
        say_images(wrapper->sources[i]);
    }
    say("\n");
    return handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) {
    void (*next)(void **) = runtime("__cudaRegisterFatBinaryEnd");
    say("end %d\n", number_of(handle));
    next(handle);
}

void __cudaRegisterFunction(void **handle, const char *stub, char *device_name, const char *name,
                            int limit, void *tid, void *bid, void *block, void *grid, int *size) {
    void (*next)(void **, const char *, char *, const char *, int, void *, void *, void *, void *,
                 int *) = runtime("__cudaRegisterFunction");
    say("function %d %s\n", number_of(handle), name);
    next(handle, stub, device_name, name, limit, tid, bid, block, grid, size);
}

void __cudaRegisterVar(void **handle, char *shadow, char *address, const char *name, int external,
                       size_t size, int constant, int global) {
    void (*next)(void **, char *, char *, const char *, int, size_t, int, int) =
        runtime("__cudaRegisterVar");
    say("variable %d %s %zu\n", number_of(handle), name, size);
    next(handle, shadow, address, name, external, size, constant, global);
}

void __cudaRegisterManagedVar(void **handle, void **pointer, char *address, const char *name,
                              int external, size_t size, int constant, int global) {
    void (*next)(void **, void **, char *, const char *, int, size_t, int, int) =
        runtime("__cudaRegisterManagedVar");
    say("managed %d %s %zu\n", number_of(handle), name, size);
    next(handle, pointer, address, name, external, size, constant, global);
}
