// Makes HIP 6.4's headers compile with clang 23, which is newer than they are: it dropped a
// macro and the declarations of device functions that they use. Includes those of clang 21,
// from the folder that its -print-resource-dir names.
#if defined(__HIP__) && !defined(HIP64_FOR_NEWER_CLANG)
#define HIP64_FOR_NEWER_CLANG
#if defined(__HIP_DEVICE_COMPILE__) && !defined(__GFX8__) && !defined(__GFX9__)
#define __AMDGCN_WAVEFRONT_SIZE 32
#else
#define __AMDGCN_WAVEFRONT_SIZE 64
#endif
#include <__clang_hip_runtime_wrapper.h>
#undef __CLANG_HIP_LIBDEVICE_DECLARES_H__
#include CLANG_21_DECLARATIONS
#endif
