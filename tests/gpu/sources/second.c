#include "region.h"
RUN(second)
