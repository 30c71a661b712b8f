#include "report.h"
RUN(first)
