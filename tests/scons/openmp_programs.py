"""Small OpenMP programs: each returns 0 if its regions computed what the host expects.

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
== scalar_tofrom
int x = 40;
#pragma omp target map(tofrom : x)
x += 2;
return x != 42;
== firstprivate
int x = 5, y = 0;
#pragma omp target map(from : y) firstprivate(x)
{ x++; y = x; }
return x != 5 || y != 6;
== implicit_scalar
int x = 5, y = 0;
#pragma omp target map(from : y)
y = x * 3;
return y != 15;
== private_copy
int x = 5, y = 0;
#pragma omp target private(x) map(from : y)
{ x = 9; y = x; }
return x != 5 || y != 9;
== array
int a[64];
#pragma omp target map(from : a)
for (int i = 0; i < 64; i++) a[i] = i * i;
return a[63] != 3969;
== array_section
int a[64] = {0};
#pragma omp target map(tofrom : a[16 : 8])
for (int i = 16; i < 24; i++) a[i] = i;
return a[15] || a[16] != 16 || a[23] != 23 || a[24];
== pointer
int n = 100, *p = malloc(n * sizeof *p), bad = 0;
#pragma omp target teams distribute parallel for map(from : p[0 : n])
for (int i = 0; i < n; i++) p[i] = i + 1;
for (int i = 0; i < n; i++) bad |= p[i] != i + 1;
free(p);
return bad;
== vla
int n = 9, a[n], s = 0;
for (int i = 0; i < n; i++) a[i] = i;
#pragma omp target map(to : a) map(tofrom : s)
for (int i = 0; i < n; i++) s += a[i];
return s != 36;
== two_dimensions
double a[7][5];
#pragma omp target teams distribute parallel for collapse(2) map(from : a)
for (int i = 0; i < 7; i++)
  for (int j = 0; j < 5; j++) a[i][j] = 10 * i + j;
return a[6][4] != 64;
== reduction_sum
long s = 0;
#pragma omp target teams distribute parallel for reduction(+ : s) map(tofrom : s)
for (int i = 0; i < 1000; i++) s += i;
return s != 499500;
== reduction_double
double s = 0;
#pragma omp target teams distribute parallel for reduction(+ : s) map(tofrom : s)
for (int i = 0; i < 256; i++) s += 0.5;
return s != 128;
== reduction_min_max
int lo = 1000, hi = -1000;
#pragma omp target teams distribute parallel for reduction(min : lo) \
    reduction(max : hi) map(tofrom : lo, hi)
for (int i = 0; i < 100; i++) {
  int v = (i * 37) % 101 - 50;
  if (v < lo) lo = v;
  if (v > hi) hi = v;
}
return lo != -50 || hi != 50;
== reduction_bits
unsigned all = ~0u, any = 0, odd = 0;
#pragma omp target parallel for reduction(& : all) reduction(| : any) reduction(^ : odd) \
    map(tofrom : all, any, odd)
for (int i = 0; i < 32; i++) { all &= ~(1u << (i & 3)); any |= 1u << i; odd ^= i; }
return all != 0xfffffff0u || any != ~0u || odd != 0;
== reduction_array
int h[4] = {0};
#pragma omp target parallel for reduction(+ : h[ : 4]) map(tofrom : h)
for (int i = 0; i < 40; i++) h[i % 4] += 1;
return h[0] != 10 || h[3] != 10;
== teams
int n = 0;
#pragma omp target teams num_teams(4) map(tofrom : n)
{
#pragma omp atomic
  n += 1;
}
return n < 1 || n > 4;
== parallel
int n = 0;
#pragma omp target map(tofrom : n)
#pragma omp parallel num_threads(4)
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
== single_and_barrier
int n = 0, after = 0;
#pragma omp target map(tofrom : n, after)
#pragma omp parallel num_threads(3) shared(n, after)
{
#pragma omp single
  n = 7;
#pragma omp barrier
#pragma omp single
  after = n + 1;
}
return after != 8;
== sections
int a = 0, b = 0;
#pragma omp target map(from : a, b)
#pragma omp parallel sections
{
#pragma omp section
  a = 1;
#pragma omp section
  b = 2;
}
return a != 1 || b != 2;
== simd
float a[48];
#pragma omp target map(from : a)
#pragma omp simd
for (int i = 0; i < 48; i++) a[i] = i * 0.5f;
return a[47] != 23.5f;
== schedule
int a[50];
#pragma omp target parallel for schedule(dynamic, 7) map(from : a)
for (int i = 0; i < 50; i++) a[i] = i;
return a[49] != 49;
== lastprivate
int last = 0;
#pragma omp target parallel for lastprivate(last) map(tofrom : last)
for (int i = 0; i < 20; i++) last = i;
return last != 19;
== if_clause
int here = 0;
#pragma omp target if (0) map(from : here)
here = omp_is_initial_device();
return !here;
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
== update
int x = 1, y = 0;
#pragma omp target data map(to : x)
{
  x = 2;
#pragma omp target update to(x)
#pragma omp target map(from : y)
  y = x;
}
return y != 2;
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
== use_device_ptr
int a[4] = {1, 2, 3, 4}, s = 0;
#pragma omp target data map(to : a) use_device_addr(a)
#pragma omp target has_device_addr(a) map(from : s)
s = a[0] + a[3];
return s != 5;
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
== implicit_function
static int thrice(int x) { return 3 * x; }
---
int x = 0;
#pragma omp target map(from : x)
x = thrice(14);
return x != 42;
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
== packed_struct
struct __attribute__((packed)) s { char c; int i; };
---
struct s v[3] = {{1, 2}, {3, 4}, {5, 6}};
int sum = 0;
#pragma omp target map(to : v) map(tofrom : sum)
for (int i = 0; i < 3; i++) sum += v[i].i;
return sum != 12 || sizeof v != 15;
== bit_fields
struct s { unsigned a : 3, b : 13, c : 16; };
---
struct s v = {5, 4000, 60000};
unsigned sum = 0;
#pragma omp target map(to : v) map(from : sum)
sum = v.a + v.b + v.c;
return sum != 64005;
== union_of_types
union u { double d; uint64_t i; };
---
union u v = {.d = 1.0};
uint64_t seen = 0;
#pragma omp target map(to : v) map(from : seen)
seen = v.i;
return seen != 0x3ff0000000000000ull;
== enums
enum e { A = -3, B = 900 };
---
enum e v = A;
#pragma omp target map(tofrom : v)
v = v == A ? B : A;
return v != B;
== member_of_struct
struct s { int n; int *p; };
---
int a[5] = {1, 1, 1, 1, 1};
struct s v = {5, a};
#pragma omp target map(to : v.n) map(tofrom : v.p[0 : 5])
for (int i = 0; i < v.n; i++) v.p[i] += i;
return a[4] != 5;
== mapper
struct s { int n; int *p; };
#pragma omp declare mapper(struct s v) map(v, v.p[0 : v.n])
---
int a[5] = {0};
struct s v = {5, a};
#pragma omp target map(tofrom : v)
for (int i = 0; i < v.n; i++) v.p[i] = i + 1;
return a[4] != 5;
== user_reduction
struct pair { int lo, hi; };
#pragma omp declare reduction(join : struct pair : \
    omp_out.lo = omp_in.lo < omp_out.lo ? omp_in.lo : omp_out.lo, \
    omp_out.hi = omp_in.hi > omp_out.hi ? omp_in.hi : omp_out.hi) initializer(omp_priv = {99, -99})
---
struct pair v = {99, -99};
#pragma omp target parallel for reduction(join : v) map(tofrom : v)
for (int i = -4; i < 9; i++) { if (i < v.lo) v.lo = i; if (i > v.hi) v.hi = i; }
return v.lo != -4 || v.hi != 8;
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
== float_math
float x = 2.25f, r = 0, m = 0;
#pragma omp target map(to : x) map(from : r, m)
{ r = sqrtf(x); m = fminf(x, 1.0f) + fmaxf(x, 3.0f); }
return r != 1.5f || m != 4.0f;
== rounding
double d[4];
#pragma omp target map(from : d)
{ d[0] = floor(-1.5); d[1] = ceil(-1.5); d[2] = trunc(-1.5); d[3] = round(-1.5); }
return d[0] != -2 || d[1] != -1 || d[2] != -1 || d[3] != -2;
== integer_64
int64_t x = 1;
#pragma omp target map(tofrom : x)
for (int i = 0; i < 40; i++) x *= 2;
return x != (int64_t)1 << 40;
== unsigned_wrap
uint8_t x = 250;
#pragma omp target map(tofrom : x)
x += 10;
return x != 4;
== booleans
_Bool x = 0;
#pragma omp target map(tofrom : x)
x = !x;
return !x;
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
== memory_functions
char a[32], b[32];
memset(a, 7, sizeof a);
#pragma omp target map(to : a) map(from : b)
{ memcpy(b, a, sizeof b); memset(b, 1, 4); }
return b[3] != 1 || b[4] != 7;
== malloc_on_device
int x = 0;
#pragma omp target map(from : x)
{ int *p = (int *)malloc(4 * sizeof(int)); p[3] = 9; x = p[3]; free(p); }
return x != 9;
== several_regions
int x = 0;
for (int i = 0; i < 10; i++) {
#pragma omp target map(tofrom : x)
  x += i;
}
return x != 45;
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
== loop_directive
int a[30];
#pragma omp target teams loop map(from : a)
for (int i = 0; i < 30; i++) a[i] = i;
return a[29] != 29;
== tiled
int a[32];
#pragma omp target map(from : a)
{
#pragma omp tile sizes(4)
  for (int i = 0; i < 32; i++) a[i] = i;
}
return a[31] != 31;
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
== references_cpp
int x = 1, &r = x;
#pragma omp target map(tofrom : r)
r += 41;
return x != 42;
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
== namespaces_cpp
namespace a { namespace b { static int f(int x) { return x + 1; } } }
---
int x = 0;
#pragma omp target map(from : x)
x = a::b::f(41);
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
