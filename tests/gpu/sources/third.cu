#include "report.h"
RUN(third)
