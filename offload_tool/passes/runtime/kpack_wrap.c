/* Registers device code that is not in the program, for host objects of -flto, whose wrappers
   cannot be edited. The link wraps the call that registers them (--wrap=__hipRegisterFatBinary).
   A wrapper that points to a MessagePack map points to a kpack marker: see
   formats/kpack/marker.py. The section of wrappers is writable. */

struct wrapper {
  unsigned int magic, version;
  const unsigned char *data;
  unsigned long long index;
};

enum { EMBEDDED = 0x48495046, KPACKED = 0x4B504948, FIXMAP = 0x80, MAP16 = 0xDE, MAP32 = 0xDF };

void **__real___hipRegisterFatBinary(struct wrapper *);

__attribute__((visibility("hidden"))) void **__wrap___hipRegisterFatBinary(struct wrapper *wrapper) {
  if (wrapper->magic == EMBEDDED) {
    unsigned char first = wrapper->data[0];
    if ((first & 0xF0) == FIXMAP || first == MAP16 || first == MAP32) {
      wrapper->magic = KPACKED;
      wrapper->index = 0;
    }
  }
  return __real___hipRegisterFatBinary(wrapper);
}
