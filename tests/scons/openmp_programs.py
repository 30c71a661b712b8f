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
== on_device
int here = 1;
#pragma omp target map(from : here)
here = omp_is_initial_device();
return here;
== pointer
int n = 100, *p = malloc(n * sizeof *p), bad = 0;
#pragma omp target teams distribute parallel for map(from : p[0 : n])
for (int i = 0; i < n; i++) p[i] = i + 1;
for (int i = 0; i < n; i++) bad |= p[i] != i + 1;
free(p);
return bad;
== reduction_sum
long s = 0;
#pragma omp target teams distribute parallel for reduction(+ : s) map(tofrom : s)
for (int i = 0; i < 1000; i++) s += i;
return s != 499500;
== teams
int n = 0;
#pragma omp target teams num_teams(4) map(tofrom : n)
{
#pragma omp atomic
  n += 1;
}
return n < 1 || n > 4;
== critical
int n = 0;
#pragma omp target parallel for map(tofrom : n)
for (int i = 0; i < 50; i++) {
#pragma omp critical
  n += 2;
}
return n != 100;
== atomic_capture
int n = 0, last = -1;
#pragma omp target map(tofrom : n, last)
{
  int seen;
#pragma omp atomic capture
  seen = n++;
  last = seen;
}
return n != 1 || last != 0;
== schedule
int a[50];
#pragma omp target parallel for schedule(dynamic, 7) map(from : a)
for (int i = 0; i < 50; i++) a[i] = i;
return a[49] != 49;
== device_clause
int here = 1;
#pragma omp target device(0) map(from : here)
here = omp_is_initial_device();
return here;
== data_region
int a[10] = {0};
#pragma omp target data map(tofrom : a)
{
#pragma omp target
  for (int i = 0; i < 10; i++) a[i] += 1;
#pragma omp target
  for (int i = 0; i < 10; i++) a[i] *= 5;
}
return a[9] != 5;
== enter_exit_data
int *p = calloc(8, sizeof *p), bad;
#pragma omp target enter data map(to : p[0 : 8])
#pragma omp target
for (int i = 0; i < 8; i++) p[i] = i;
#pragma omp target exit data map(from : p[0 : 8])
bad = p[7] != 7;
free(p);
return bad;
== nowait_depend
int x = 1;
#pragma omp target map(tofrom : x) nowait depend(out : x)
x += 1;
#pragma omp target map(tofrom : x) nowait depend(inout : x)
x *= 10;
#pragma omp taskwait
return x != 20;
== allocate_on_device
int here = omp_get_initial_device(), there = omp_get_default_device(), got = 0, give = 12;
int *p = omp_target_alloc(sizeof *p, there);
omp_target_memcpy(p, &give, sizeof give, 0, 0, there, here);
#pragma omp target is_device_ptr(p)
*p += 30;
omp_target_memcpy(&got, p, sizeof got, 0, 0, here, there);
omp_target_free(p, there);
return got != 42;
== is_present
int x = 0, before, inside;
before = omp_target_is_present(&x, 0);
#pragma omp target data map(alloc : x)
inside = omp_target_is_present(&x, 0);
return before || !inside;
== devices
return omp_get_num_devices() < 1;
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
== constant_table
#pragma omp begin declare target
static const int table[] = {2, 3, 5, 7, 11};
#pragma omp end declare target
---
int s = 0;
#pragma omp target map(tofrom : s)
for (int i = 0; i < 5; i++) s += table[i];
return s != 28;
== device_function
#pragma omp begin declare target
int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
#pragma omp end declare target
---
int x = 0;
#pragma omp target map(from : x)
x = fib(10);
return x != 55;
== function_pointer
#pragma omp begin declare target
static int one(int x) { return x + 1; }
static int two(int x) { return x + 2; }
#pragma omp end declare target
---
int x = 0;
#pragma omp target map(tofrom : x)
{ int (*f)(int) = x > 100 ? one : two; x = f(40); }
return x != 42;
== variant
static int of_host(void) { return 1; }
#pragma omp begin declare target device_type(nohost)
static int of_device(void) { return 2; }
#pragma omp end declare target
#pragma omp declare variant(of_device) match(device = {kind(nohost)})
static int chosen(void) { return of_host(); }
---
int x = 0;
#pragma omp target map(from : x)
x = chosen();
return x != 2 || chosen() != 1;
== struct_layout
struct s { char c; double d; short h; int64_t l; float f[3]; };
---
struct s v = {1, 2.5, 3, 4, {5, 6, 7}};
size_t size = 0, at = 0;
#pragma omp target map(tofrom : v) map(from : size, at)
{ size = sizeof v; at = offsetof(struct s, f); v.d *= 2; v.f[2] += 1; }
return size != sizeof v || at != offsetof(struct s, f) || v.d != 5 || v.f[2] != 8;
== mapper
struct s { int n; int *p; };
#pragma omp declare mapper(struct s v) map(v, v.p[0 : v.n])
---
int a[5] = {0};
struct s v = {5, a};
#pragma omp target map(tofrom : v)
for (int i = 0; i < v.n; i++) v.p[i] = i + 1;
return a[4] != 5;
== sqrt_and_pow
double a = 0, b = 0;
#pragma omp target map(tofrom : a, b)
{ a = sqrt(a + 16.0); b = pow(a, 3.0); }
return a != 4 || b != 64;
== trigonometry
double x = 0.5, s = 0, c = 0;
#pragma omp target map(to : x) map(from : s, c)
{ s = sin(x); c = cos(x); }
return fabs(s * s + c * c - 1) > 1e-12;
== rounding
double d[4];
#pragma omp target map(from : d)
{ d[0] = floor(-1.5); d[1] = ceil(-1.5); d[2] = trunc(-1.5); d[3] = round(-1.5); }
return d[0] != -2 || d[1] != -1 || d[2] != -1 || d[3] != -2;
== print
#pragma omp target
printf("%d %s %.2f\n", 42, "words", 0.25);
return 0;
== streams
int a = 5, b = 7, r = 0;
#pragma omp target map(tofrom : r)
{ r = a; if (a > 100) fprintf(stderr, "%d", a); r += b; }
return r != 12;
== stdin_and_stdout
int n = 3, seen = 0;
#pragma omp target map(from : seen)
{ seen = n + (stdin == stdout); }
return seen != 3;
== strings
char text[16] = "abc";
int n = 0;
#pragma omp target map(tofrom : text, n)
{ strcpy(text + 3, "def"); n = (int)strlen(text); }
return n != 6 || strcmp(text, "abcdef");
== malloc_on_device
int x = 0;
#pragma omp target map(from : x)
{ int *p = (int *)malloc(4 * sizeof(int)); p[3] = 9; x = p[3]; free(p); }
return x != 9;
== nested_loops
int n = 0;
#pragma omp target teams distribute map(tofrom : n) reduction(+ : n)
for (int i = 0; i < 8; i++) {
  int own = 0;
#pragma omp parallel for reduction(+ : own)
  for (int j = 0; j < 8; j++) own += 1;
  n += own;
}
return n != 64;
== global_initializers
int one = 1, *to_one = &one;
---
int x = 0;
#pragma omp target map(tofrom : x, one)
x = one + 41;
return x != 42 || *to_one != 1;
== template_cpp
template <class T> static T twice(T x) {
  T y;
#pragma omp target map(from : y)
  y = x * 2;
  return y;
}
---
return twice(2.5) != 5 || twice(21) != 42;
== lambda_cpp
int base = 40, r = 0;
auto add = [=](int x) { return base + x; };
#pragma omp target map(from : r)
r = add(2);
return r != 42;
== class_cpp
#pragma omp begin declare target
struct Counter { int n = 1; void add(int by) { n += by; } int get() const { return n; } };
#pragma omp end declare target
---
Counter c;
#pragma omp target map(tofrom : c)
c.add(5);
return c.get() != 6;
== member_function_cpp
struct Work {
  int n = 4, a[4] = {};
  void run() {
#pragma omp target map(tofrom : this[0 : 1])
    for (int i = 0; i < n; i++) a[i] = i * i;
  }
};
---
Work w;
w.run();
return w.a[3] != 9;
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
