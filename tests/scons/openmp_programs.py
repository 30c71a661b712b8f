"""Small OpenMP programs: each returns 0 if its regions computed what the host expects.

Each needs something of a build, or has something that a build could lose: device libraries,
runtime functions, variables and entries of the device, layouts that host and device share.
A row is the name, and the body of ``int test(void)``, after ``---`` if anything stands before the
function. Names that end in ``_cpp`` are C++.
"""

from __future__ import annotations

import re

HEAD = """\
#include <math.h>
#include <omp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
"""
MAIN = "int test(void);\nint main(void) { return test(); }\n"

_ROWS = r"""
== declare_target_variable
#pragma omp begin declare target
int counter = 3;
#pragma omp end declare target
---
int seen = 0;
counter = 8;
#pragma omp target update to(counter)
#pragma omp target map(from : seen)
{ seen = counter; counter = 30; }
int host = counter;
#pragma omp target update from(counter)
return seen != 8 || host != 8 || counter != 30;
== default_visibility
#pragma omp begin declare target
__attribute__((visibility("default"))) int shown = 42;
#pragma omp end declare target
---
int seen = 0;
shown = 420;
#pragma omp target map(from : seen)
seen = shown;
return seen != 42;
== declare_target_link
int linked = 6;
#pragma omp declare target link(linked)
---
int seen = 0;
#pragma omp target map(to : linked) map(from : seen)
seen = linked;
return seen != 6;
== static_variable
#pragma omp begin declare target
static int hidden = 7;
static int next(void) { return ++hidden; }
#pragma omp end declare target
---
int seen = 0;
#pragma omp target map(from : seen)
seen = next();
return seen != 8 || hidden != 7;
== streams
int a = 5, b = 7, r = 0;
#pragma omp target map(tofrom : r)
{ r = a; if (a > 100) fprintf(stderr, "%d", a); r += b; }
return r != 12;
== vector_cpp
#include <vector>
#include <cmath>
---
std::vector<double> v(10, -1.5);
double *p = v.data(), s = 0;
#pragma omp target teams distribute parallel for map(to : p[0 : 10]) \
    reduction(+ : s) map(tofrom : s)
for (int i = 0; i < 10; i++) s += std::fabs(p[i]);
return s != 15;
== static_constructor_cpp
#pragma omp begin declare target
struct Init { int n; Init() : n(42) {} };
Init made;
#pragma omp end declare target
---
int x = 0;
#pragma omp target map(from : x)
x = made.n;
return x != 42;
"""


def _program(name: str, text: str) -> str:
    before, mark, body = text.partition("---\n")
    if not mark:
        before, body = "", text
    linkage = 'extern "C" ' if name.endswith("_cpp") else ""
    declared = f"{linkage}int test(void);\n"
    return f"{HEAD}{before}{declared}int test(void) {{\n{body}}}\n"


PROGRAMS = {
    name: _program(name, text)
    for name, _, text in (
        row.partition("\n") for row in re.split(r"^== ", _ROWS, flags=re.MULTILINE)[1:]
    )
}
"""The source of each program but for `MAIN`, by name."""
