// One source, one kernel: which image was loaded, and from which version of the source.
#include "report.h"
UNIT(images)
int main() {
    report("images", images);
    return 0;
}
