/* Counts what a program registers with the HIP runtime, and passes every call on to it.
 *
 * Preloaded (LD_PRELOAD) into a program that is linked with the real libamdhip64, which takes
 * the registrations whether there is a GPU or not. One line for each call is appended to the
 * file that COUNT_REGISTRATIONS names:
 *
 *     binary <number> <entry ID> <entry ID> ...    a fat binary, numbered from 0, its entries
 *     function <number> <name>                     a kernel, of which fat binary
 *     variable <number> <name> <size in bytes>     a device variable
 *     managed <number> <name> <size in bytes>      a managed variable
 *     surface <number> <name>
 *     texture <number> <name>
 *     module <path>                                a call of hipModuleLoad
 *
 * Managed variables are not passed on: without a GPU, the runtime of HIP 6.4 aborts there.
 *
 * A fat binary whose wrapper or bundle has another magic has one entry, "unknown".
 * Layouts: clang's CGCUDANV.cpp (the wrapper: magic "HIPF", version 1, binary, unused) and
 * ClangOffloadBundler.rst (the binary layout of bundles).
 */
#define _GNU_SOURCE
#include "counting.h"

enum { WRAPPER_MAGIC = 0x48495046 };

static const char bundle_magic[] = "__CLANG_OFFLOAD_BUNDLE__";
static const char compressed_magic[] = "CCOB";

struct fat_binary_wrapper {
    uint32_t magic;
    uint32_t version;
    const char *binary;
    void *unused;
};

static void say_entries(const struct fat_binary_wrapper *wrapper) {
    const char *at = wrapper->binary;
    if (wrapper->magic == WRAPPER_MAGIC && !memcmp(at, compressed_magic, strlen(compressed_magic))) {
        say(" compressed");
    } else if (wrapper->magic == WRAPPER_MAGIC && !memcmp(at, bundle_magic, strlen(bundle_magic))) {
        at += strlen(bundle_magic);
        uint64_t left = read_bytes(at, 8);
        for (at += 8; left; --left) {
            uint64_t length = read_bytes(at + 16, 8);
            say(" %.*s", (int)length, at + 24);
            at += 24 + length;
        }
    } else {
        say(" unknown");
    }
}

void **__hipRegisterFatBinary(const void *data) {
    void **(*next)(const void *) = runtime("__hipRegisterFatBinary");
    void **handle = numbered(next(data));
    say_entries(data);
    say("\n");
    return handle;
}

void __hipRegisterFunction(void **handle, const void *stub, char *device_name, const char *name,
                           unsigned limit, void *tid, void *bid, void *block, void *grid, int *size) {
    void (*next)(void **, const void *, char *, const char *, unsigned, void *, void *, void *,
                 void *, int *) = runtime("__hipRegisterFunction");
    say("function %d %s\n", number_of(handle), name);
    next(handle, stub, device_name, name, limit, tid, bid, block, grid, size);
}

void __hipRegisterVar(void **handle, void *shadow, char *address, char *name, int external,
                      size_t size, int constant, int global) {
    void (*next)(void **, void *, char *, char *, int, size_t, int, int) =
        runtime("__hipRegisterVar");
    say("variable %d %s %zu\n", number_of(handle), name, size);
    next(handle, shadow, address, name, external, size, constant, global);
}

void __hipRegisterManagedVar(void *handle, void **pointer, void *initial, const char *name,
                             size_t size, unsigned alignment) {
    say("managed %d %s %zu\n", number_of(handle), name, size);
    (void)pointer, (void)initial, (void)alignment;
}

void __hipRegisterSurface(void **handle, void *shadow, char *address, char *name, int type,
                          int external) {
    void (*next)(void **, void *, char *, char *, int, int) = runtime("__hipRegisterSurface");
    say("surface %d %s\n", number_of(handle), name);
    next(handle, shadow, address, name, type, external);
}

void __hipRegisterTexture(void **handle, void *shadow, char *address, char *name, int type,
                          int normalized, int external) {
    void (*next)(void **, void *, char *, char *, int, int, int) = runtime("__hipRegisterTexture");
    say("texture %d %s\n", number_of(handle), name);
    next(handle, shadow, address, name, type, normalized, external);
}

int hipModuleLoad(void **module, const char *path) {
    int (*next)(void **, const char *) = runtime("hipModuleLoad");
    say("module %s\n", path);
    return next(module, path);
}
