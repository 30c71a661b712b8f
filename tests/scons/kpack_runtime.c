/* A stand-in for HIP's runtime that takes the documented steps from a wrapper to a code object:
   the marker, the paths from the folder of the file that the wrapper is in, the target IDs of
   $DEVICE in their order, each archive's table, the key "name#index". Schemes but "none" are not
   read. It prints the digest of each code object, and the names of kernels that are registered. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const unsigned char *at, *end; } Reader;
typedef struct { const char *text; size_t size; } Text;

static void fail(const char *what) { printf("failed: %s\n", what); exit(1); }

static uint64_t big(Reader *r, int bytes) {
  uint64_t value = 0;
  if (r->end - r->at < bytes) fail("MessagePack ends");
  while (bytes--) value = value << 8 | *r->at++;
  return value;
}

static uint64_t number(Reader *r) {
  uint64_t first = big(r, 1);
  if (first < 0x80) return first;
  if (first < 0xCC || first > 0xCF) fail("no number");
  return big(r, 1 << (first - 0xCC));
}

static size_t sized(Reader *r, int fix, int limit, int code8, int code16) {
  uint64_t first = big(r, 1);
  if (first >= (uint64_t)fix && first < (uint64_t)limit) return first - fix;
  if (code8 && first == (uint64_t)code8) return big(r, 1);
  if (first == (uint64_t)code16) return big(r, 2);
  if (first == (uint64_t)code16 + 1) return big(r, 4);
  fail("another type");
  return 0;
}

static size_t map(Reader *r) { return sized(r, 0x80, 0x90, 0, 0xDE); }
static size_t array(Reader *r) { return sized(r, 0x90, 0xA0, 0, 0xDC); }

static Text text(Reader *r) {
  Text found;
  found.size = sized(r, 0xA0, 0xC0, 0xD9, 0xDA);
  found.text = (const char *)r->at;
  r->at += found.size;
  return found;
}

static int is(Text found, const char *name) {
  return found.size == strlen(name) && !memcmp(found.text, name, found.size);
}

static void skip(Reader *r) {
  unsigned char first = *r->at;
  size_t count;
  if (first < 0x80 || (first >= 0xCC && first <= 0xCF)) number(r);
  else if (first < 0x90 || first >= 0xDE) for (count = 2 * map(r); count--;) skip(r);
  else if (first < 0xA0 || first >= 0xDC) for (count = array(r); count--;) skip(r);
  else text(r);
}

/* Print what an archive has under a key for a target; 0 if it has nothing. */
static int load(const char *path, const char *key, const char *target) {
  FILE *file = fopen(path, "rb");
  if (!file) return 0;
  fseek(file, 0, SEEK_END);
  size_t size = ftell(file);
  unsigned char *data = malloc(size);
  rewind(file);
  if (fread(data, 1, size, file) != size || memcmp(data, "KPAK\1\0\0\0", 8)) fail("no archive");
  fclose(file);
  uint64_t toc, ordinal = ~0ull, listed = 0;
  memcpy(&toc, data + 8, 8);
  Reader r = {data + toc, data + size}, blobs = r;
  for (size_t keys = map(&r); keys--;) {
    Text name = text(&r);
    if (is(name, "gfx_arches")) {
      for (size_t count = array(&r); count--;) listed |= is(text(&r), target);
    } else if (is(name, "toc")) {
      for (size_t rows = map(&r); rows--;) {
        int wanted = is(text(&r), key);
        for (size_t targets = map(&r); targets--;) {
          int mine = is(text(&r), target) && wanted;
          for (size_t fields = map(&r); fields--;) {
            if (is(text(&r), "ordinal") && mine) ordinal = number(&r); else skip(&r);
          }
        }
      }
    } else {
      if (is(name, "blobs")) blobs = r;
      skip(&r);
    }
  }
  if (!listed || ordinal == ~0ull || ordinal >= array(&blobs)) return 0;
  while (ordinal--) skip(&blobs);
  uint64_t offset = 0, length = 0, digest = 14695981039346656037ull;
  for (size_t fields = map(&blobs); fields--;) {
    int first = is(text(&blobs), "offset");
    *(first ? &offset : &length) = number(&blobs);
  }
  for (uint64_t at = offset; at < offset + length; ++at) digest = (digest ^ data[at]) * 1099511628211ull;
  printf("loaded %016llx\n", (unsigned long long)digest);
  return 1;
}

static int search(const char *folder, Text path, const char *key, const char *targets) {
  char list[256], whole[3 * PATH_MAX], expanded[4 * PATH_MAX];
  snprintf(list, sizeof list, "%s", targets);
  for (char *target = strtok(list, ","); target; target = strtok(0, ",")) {
    snprintf(whole, sizeof whole, "%s/%.*s", folder, (int)path.size, path.text);
    char *place = strstr(whole, "@GFXARCH@");
    if (!place) fail("no @GFXARCH@");
    snprintf(expanded, sizeof expanded, "%.*s%s%s", (int)(place - whole), whole, target, place + 9);
    if (load(expanded, key, target)) return 1;
  }
  return 0;
}

void **__hipRegisterFatBinary(const void *data) {
  static void *handle;
  struct { char magic[4]; uint32_t version; const unsigned char *pointer; uint64_t index; } wrapper;
  memcpy(&wrapper, data, sizeof wrapper);
  if (memcmp(wrapper.magic, "HIPK", 4) || wrapper.version != 1) fail("no HIPK wrapper");
  Dl_info info;
  char folder[PATH_MAX], key[4096];
  if (!dladdr(data, &info) || !realpath(info.dli_fname, folder)) fail("no file");
  *strrchr(folder, '/') = 0;
  Reader r = {wrapper.pointer, wrapper.pointer + 65536}, paths = r;
  for (size_t keys = map(&r); keys--;) {
    Text name = text(&r);
    if (is(name, "kernel_name")) {
      Text found = text(&r);
      snprintf(key, sizeof key, "%.*s#%u", (int)found.size, found.text, (uint32_t)wrapper.index);
    } else {
      if (is(name, "kpack_search_paths")) paths = r;
      skip(&r);
    }
  }
  printf("module %s\n", key);
  int found = 0;
  for (size_t count = array(&paths); count-- && !found;)
    found = search(folder, text(&paths), key, getenv("DEVICE"));
  if (!found) puts("nothing");
  return &handle;
}

void __hipRegisterFunction(void **h, const void *f, char *d, const char *name, unsigned t, void *a,
                           void *b, void *c, void *e, int *w) {
  (void)h, (void)f, (void)d, (void)t, (void)a, (void)b, (void)c, (void)e, (void)w;
  printf("kernel %s\n", name);
}
void __hipRegisterVar() {}
void __hipRegisterManagedVar() {}
void __hipRegisterSurface() {}
void __hipRegisterTexture() {}
void __hipUnregisterFatBinary(void **h) { (void)h; }
int __hipPushCallConfiguration() { return 0; }
int __hipPopCallConfiguration() { return 0; }
int hipLaunchKernel() { return 100; }
