// A fat binary without a host program: run.py loads it with cuModuleLoadData.
#include "report.h"
extern "C" {
UNIT(module)
}
