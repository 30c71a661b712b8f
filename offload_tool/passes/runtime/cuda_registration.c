/* Registers a program's relocatable CUDA code when the program, or shared library, starts.

   Compiled once for each program, with MODULES defined as X(ID) for each module ID that its
   host objects reference (see formats/host_symbols.py), and for those of NVIDIA's device runtime
   if kernels start kernels; another object has the fat binaries. All share one handle, so that
   the runtime loads each image once:

     host code of nvcc and of clang's old offload driver calls __cudaRegisterLinkedBinary<ID>,
     which waits for the last of these calls, as nvcc's own device link does;
     entries of clang's new offload driver are registered with them or, without such calls,
     before the constructors of C++, as clang does.

   A device without a linked image may link the sources' own PTX: the runtime gets the fat
   binaries of all sources with the linked one. Sources: crt/link.stub and fatbinary_section.h
   of CUDA 13.0, the modules that llvm-offload-wrapper 22 and clang-linker-wrapper 19 write. */

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

/* LLVM 19 and 20: section cuda_offloading_entries. */
struct old_entry {
  void *address;
  char *name;
  u64 size;
  u32 flags;
  int data;
};

/* Points to a fat binary, whose header has its size. */
struct wrapper {
  u32 magic, version;
  const void *data;
  const void *extra; /* LINKED: an array of pointers to the fat binaries of sources, up to 0 */
};

enum { CUDA = 2 };                                           /* entry.kind */
enum { VARIABLE, MANAGED, SURFACE, TEXTURE, TYPE = 7 };      /* in entry.flags */
enum { EXTERN = 8, CONSTANT = 16, NORMALIZED = 32 };
enum { MAGIC = 0x466243b1, LINKED = 2 };

#define HIDDEN __attribute__((visibility("hidden")))
#define OPTIONAL HIDDEN __attribute__((weak))                /* no entry, no section */

extern const struct entry __start_llvm_offload_entries[] OPTIONAL;
extern const struct entry __stop_llvm_offload_entries[] OPTIONAL;
extern const struct old_entry __start_cuda_offloading_entries[] OPTIONAL;
extern const struct old_entry __stop_cuda_offloading_entries[] OPTIONAL;
extern const char __offload_cuda_fatbin[] HIDDEN;
extern const void *const __offload_cuda_sources[] HIDDEN; /* up to 0 */

void **__cudaRegisterFatBinary(const void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
int __cudaRegisterFunction(void **, const void *, char *, const char *, int, void *, void *,
                           void *, void *, int *);
/* Weak: a runtime may lack these if nothing references them. */
#define RARE __attribute__((weak))
RARE void __cudaRegisterVar(void **, void *, char *, const char *, int, u64, int, int);
RARE void __cudaRegisterManagedVar(void **, void *, void *, const char *, u64, u32);
RARE void __cudaRegisterSurface(void **, void *, char *, const char *, int, int);
RARE void __cudaRegisterTexture(void **, void *, char *, const char *, int, int, int);
void *malloc(__SIZE_TYPE__);
int atexit(void (*)(void));

static struct wrapper program __attribute__((section(".nvFatBinSegment"), aligned(8))) = {
    MAGIC, LINKED, __offload_cuda_fatbin, __offload_cuda_sources};
static void **handle;

/* All modules whose device code is linked, as in nvcc's link: these references make the linker
   extract them from libraries, for a device that links the sources itself. */
#define X(ID) extern const struct wrapper __fatbinwrap##ID;
MODULES
#undef X
static const struct wrapper *const modules[] = {
#define X(ID) &__fatbinwrap##ID,
    MODULES
#undef X
    0};
enum { MODULE_COUNT = sizeof modules / sizeof *modules - 1 };
static void (*callbacks[MODULE_COUNT + 1])(void **);
static int called;

/* The fat binaries of all sources, for a device that links them itself. */
static void add_modules(void) {
  u64 count = MODULE_COUNT;
  for (const void *const *source = __offload_cuda_sources; *source; ++source)
    ++count;
  const void **all = malloc((count + 1) * sizeof *all);
  if (!all)
    return;
  program.extra = all;
  for (int i = 0; i < MODULE_COUNT; ++i)
    *all++ = modules[i]->data;
  for (const void *const *source = __offload_cuda_sources; *source; ++source)
    *all++ = *source;
  *all = 0;
}

static void add(const struct entry *e) {
  int external = (e->flags & EXTERN) != 0, constant = (e->flags & CONSTANT) != 0;
  if (!e->size) {
    __cudaRegisterFunction(handle, e->address, e->name, e->name, -1, 0, 0, 0, 0, 0);
    return;
  }
  switch (e->flags & TYPE) {
  case VARIABLE:
    __cudaRegisterVar(handle, e->address, e->name, e->name, external, e->size, constant, 0);
    break;
  case MANAGED:
    __cudaRegisterManagedVar(handle, e->auxiliary, e->address, e->name, e->size, (u32)e->data);
    break;
  case SURFACE:
    __cudaRegisterSurface(handle, e->address, e->name, e->name, (int)e->data, external);
    break;
  case TEXTURE:
    __cudaRegisterTexture(handle, e->address, e->name, e->name, (int)e->data,
                          (e->flags & NORMALIZED) != 0, external);
    break;
  }
}

static int add_entries(int adding) {
  int count = 0;
  for (const struct entry *e = __start_llvm_offload_entries; e != __stop_llvm_offload_entries; ++e)
    if (e->kind == CUDA && ++count && adding)
      add(e);
  for (const struct old_entry *o = __start_cuda_offloading_entries;
       o != __stop_cuda_offloading_entries; ++o) {
    struct entry e = {0, 0, CUDA, o->flags, o->address, o->name, o->size, (u64)o->data, 0};
    if ((!o->size || (o->flags & TYPE) != MANAGED) && ++count && adding)
      add(&e); /* LLVM 19 does not register the others either */
  }
  return count;
}

static void end(void) {
  if (handle)
    __cudaUnregisterFatBinary(handle);
  handle = 0;
}

static void begin(void) {
  if (MODULE_COUNT)
    add_modules();
  handle = __cudaRegisterFatBinary(&program);
  atexit(end);
  for (int i = 0; i < called; ++i)
    callbacks[i](handle);
  add_entries(1);
  __cudaRegisterFatBinaryEnd(handle);
}

__attribute__((unused)) static void called_back(void (*callback)(void **)) {
  callbacks[called++] = callback;
  if (called == MODULE_COUNT)
    begin();
}

#define X(ID)                                                                                      \
  HIDDEN void __cudaRegisterLinkedBinary##ID(void (*callback)(void **), const void *fat_binary,    \
                                             const void *id, void (*use)(void *)) {                \
    (void)fat_binary, (void)id, (void)use;                                                         \
    called_back(callback);                                                                         \
  }
MODULES
#undef X

/* Before the constructors of C++, as in LLVM: they may start kernels. */
__attribute__((constructor(101))) static void offload_register(void) {
  if (!MODULE_COUNT && add_entries(0))
    begin();
}
