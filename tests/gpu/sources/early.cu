// Kernels are registered before the constructors of C++: this one starts a kernel.
#include "report.h"
UNIT(early)
struct Early {
    Early() { report("early", early); }
} object;
