/* Tells HIP's runtime of device code that is apart from the program, where the compiler's wrappers
   could not be changed: in host objects of -flto. The link wraps the call that registers them
   (--wrap=__hipRegisterFatBinary). A pointer to a MessagePack map is one to a kpack marker; see
   formats/hip_fatbin.py and formats/kpack_marker.py. The section of wrappers is writable. */

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
