/* Registers a program's relocatable HIP code when the program, or shared library, starts.

   Objects of the new offload driver do not register themselves: they list their kernels and
   variables in a section. This file, the same for every program, registers them. Another object
   (see formats/hip_fatbin.py) has the bundle and the handle, which it shares with objects
   of the old driver, so that the runtime loads the bundle once. Sources: the modules that
   llvm-offload-wrapper 22 and clang-linker-wrapper 19 write, and the host code of clang 22. */

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* LLVM 21 and later: section llvm_offload_entries, of all offload kinds. */
struct entry {
  u64 reserved;
  u16 version, kind;
  u32 flags;
  void *address;
  char *name;
  u64 size, data;
  void *auxiliary;
};

/* LLVM 19: section hip_offloading_entries. */
struct old_entry {
  void *address;
  char *name;
  u64 size;
  u32 flags;
  int data;
};

enum { HIP = 4 };                                            /* entry.kind */
enum { VARIABLE, MANAGED, SURFACE, TEXTURE, TYPE = 7 };      /* in entry.flags */
enum { EXTERN = 8, CONSTANT = 16, NORMALIZED = 32 };

#define HIDDEN __attribute__((visibility("hidden")))
#define OPTIONAL HIDDEN __attribute__((weak))                /* no entry, no section */

extern const struct entry __start_llvm_offload_entries[] OPTIONAL;
extern const struct entry __stop_llvm_offload_entries[] OPTIONAL;
extern const struct old_entry __start_hip_offloading_entries[] OPTIONAL;
extern const struct old_entry __stop_hip_offloading_entries[] OPTIONAL;
/* Weak: without entries and other references, there is no bundle. */
extern const char __hip_fatbin[] OPTIONAL;
extern void **__hip_gpubin_handle OPTIONAL;

void **__hipRegisterFatBinary(const void *);
void __hipUnregisterFatBinary(void **);
int __hipRegisterFunction(void **, const void *, char *, const char *, u32, void *, void *, void *,
                          void *, int *);
/* Weak: a runtime may lack these if nothing references them. */
#define RARE __attribute__((weak))
RARE void __hipRegisterVar(void **, void *, char *, const char *, int, u64, int, int);
RARE void __hipRegisterManagedVar(void **, void *, void *, const char *, u64, u32);
RARE void __hipRegisterSurface(void **, void *, char *, const char *, int, int);
RARE void __hipRegisterTexture(void **, void *, char *, const char *, int, int, int);
int atexit(void (*)(void));

#ifndef OFFLOAD_WRAPPER
#define OFFLOAD_WRAPPER 0x48495046 /* "HIPF": a bundle; "HIPK", 0x4B504948: a kpack marker */
#endif

static const struct {
  u32 magic, version;
  const char *bundle;
  void *unused;
} wrapper __attribute__((section(".hipFatBinSegment"), aligned(8))) = {
    OFFLOAD_WRAPPER, 1, __hip_fatbin, 0};

static void add(void **handle, const struct entry *e) {
  int external = (e->flags & EXTERN) != 0, constant = (e->flags & CONSTANT) != 0;
  if (!e->size) {
    __hipRegisterFunction(handle, e->address, e->name, e->name, -1u, 0, 0, 0, 0, 0);
    return;
  }
  switch (e->flags & TYPE) {
  case VARIABLE:
    __hipRegisterVar(handle, e->address, e->name, e->name, external, e->size, constant, 0);
    break;
  case MANAGED:
    __hipRegisterManagedVar(handle, e->auxiliary, e->address, e->name, e->size, (u32)e->data);
    break;
  case SURFACE:
    __hipRegisterSurface(handle, e->address, e->name, e->name, (int)e->data, external);
    break;
  case TEXTURE:
    __hipRegisterTexture(handle, e->address, e->name, e->name, (int)e->data,
                         (e->flags & NORMALIZED) != 0, external);
    break;
  }
}

static void end(void) {
  if (__hip_gpubin_handle) {
    __hipUnregisterFatBinary(__hip_gpubin_handle);
    __hip_gpubin_handle = 0;
  }
}

static void **begin(void) {
  if (!__hip_gpubin_handle)
    __hip_gpubin_handle = __hipRegisterFatBinary(&wrapper);
  return __hip_gpubin_handle;
}

/* Before the constructors of C++, as in LLVM: they may start kernels. */
__attribute__((constructor(101))) static void offload_register(void) {
  void **handle = 0;
  for (const struct entry *e = __start_llvm_offload_entries; e != __stop_llvm_offload_entries; ++e)
    if (e->kind == HIP)
      add(handle = begin(), e);
  for (const struct old_entry *o = __start_hip_offloading_entries;
       o != __stop_hip_offloading_entries; ++o) {
    struct entry e = {0, 0, HIP, o->flags, o->address, o->name, o->size, (u64)o->data, 0};
    if (!o->size || (o->flags & TYPE) != MANAGED) /* LLVM 19 does not register these either */
      add(handle = begin(), &e);
  }
  if (handle)
    atexit(end);
}
