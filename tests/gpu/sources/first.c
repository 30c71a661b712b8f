#include "region.h"
RUN(first)
