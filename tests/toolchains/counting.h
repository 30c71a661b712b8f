/* What both counters of registrations share: their log, the functions that they stand before, and
 * the numbers of fat binaries. One translation unit includes it. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BINARIES = 256 };

static void **handles[MOST_BINARIES];
static int handle_count;

/* Appends to the file that COUNT_REGISTRATIONS names. */
static void say(const char *format, ...) {
    const char *path = getenv("COUNT_REGISTRATIONS");
    FILE *file = path ? fopen(path, "a") : stderr;
    va_list arguments;
    if (!file) {
        perror(path);
        abort();
    }
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    if (path) fclose(file);
}

/* Finds the runtime's own function; without it the program was not linked with the runtime. */
static void *runtime(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "%s: no %s in the runtime\n", __BASE_FILE__, name);
        abort();
    }
    return found;
}

/* Gives a fat binary the next number, and says so: the rest of the line is the caller's. */
static void **numbered(void **handle) {
    if (handle_count == MOST_BINARIES) abort();
    handles[handle_count] = handle;
    say("binary %d", handle_count++);
    return handle;
}

static int number_of(void **handle) {
    for (int i = 0; i < handle_count; ++i)
        if (handles[i] == handle) return i;
    return -1;
}

static uint64_t read_bytes(const char *at, size_t size) {
    uint64_t value = 0;
    memcpy(&value, at, size);
    return value;
}
