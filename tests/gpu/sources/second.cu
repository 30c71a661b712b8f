#include "report.h"
RUN(second)
