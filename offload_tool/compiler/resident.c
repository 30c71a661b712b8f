/* A program that is loaded once and run many times: resident.py has the picture of the protocol.
 *
 * Preloaded into a compiler, this takes the place of its main function, once the dynamic linker and
 * all static initialisers are done. For each job it forks. The child becomes what a newly started
 * process is at its main function, and calls that; the parent only tells how children end.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int Main(int, char **, char **);
typedef int Start(Main *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

enum {
    TALK, FOLDER, FILES, GIVEN = FILES + 16, /* what comes with a job; at most so many files */
    MOST = 1000,       /* jobs at a time */
    LOOK_EVERY = 1000, /* milliseconds: is the build still there? */
    GRACE = 5,         /* seconds between asking a job to end and ending it */
    NOT_STARTED = -1,  /* in the place of a process */
    CANNOT_RUN = 127,
};

static const char VARIABLE[] = "OFFLOAD_RESIDENT"; /* "SOCKET:LIBRARY:PID OF THE BUILD" */
static Main *real_main;

static struct job {
    int socket;
    pid_t process;
    time_t asked_to_end; /* or 0 */
} jobs[MOST];
static int count;

static int control, signals;
static sigset_t given_mask;

static void unset(char **environment, const char *name) {
    size_t length = strlen(name);
    char **kept = environment;
    for (char **entry = environment; *entry; entry++)
        if (strncmp(*entry, name, length) || (*entry)[length] != '=')
            *kept++ = *entry;
    *kept = NULL;
}

static int threads(void) {
    DIR *folder = opendir("/proc/self/task");
    if (!folder)
        return 0;
    int found = -2; /* "." and ".." */
    while (readdir(folder))
        found++;
    closedir(folder);
    return found;
}

static time_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1; /* never 0 */
}

/* Reads the words of a job, each with its NUL, up to the end; NULL if that cannot be done. */
static char **read_words(int from, int *number) {
    size_t size = 0, room = 1 << 14;
    char *text = malloc(room);
    for (ssize_t got; text; size += (size_t)got) {
        if (size == room && !(text = realloc(text, room *= 2)))
            return NULL;
        while ((got = read(from, text + size, room - size)) < 0 && errno == EINTR)
            ;
        if (got < 0)
            return NULL;
        if (!got)
            break;
    }
    if (!size || text[size - 1])
        return NULL;
    *number = 0;
    for (size_t at = 0; at < size; at++)
        *number += !text[at];
    char **words = malloc(((size_t)*number + 1) * sizeof *words);
    if (!words)
        return NULL;
    for (int at = 0; at < *number; at++, text += strlen(text) + 1)
        words[at] = text;
    words[*number] = NULL;
    return words;
}

/* Makes this child what a new process is: its descriptors are the files, from 0 on. */
static char **become_new(int *given, int descriptors, pid_t server, int *number) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != server)
        _exit(CANNOT_RUN);
    close(control);
    close(signals);
    for (int at = 0; at < count; at++)
        close(jobs[at].socket);
    char **words = read_words(given[TALK], number);
    if (!words || fchdir(given[FOLDER]))
        _exit(CANNOT_RUN);
    close(given[TALK]);
    close(given[FOLDER]);
    for (int at = FILES; at < descriptors; at++) { /* none may be in the way of another one */
        int aside = fcntl(given[at], F_DUPFD, GIVEN);
        close(given[at]);
        given[at] = aside;
    }
    for (int at = FILES; at < descriptors; at++) {
        if (dup2(given[at], at - FILES) < 0)
            _exit(CANNOT_RUN);
        close(given[at]);
    }
    sigprocmask(SIG_SETMASK, &given_mask, NULL);
    return words;
}

/* Takes a job. Gives its words in its child, and NULL here. */
static char **take(int *number, int *is_over) {
    char byte, ancillary[CMSG_SPACE(GIVEN * sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1,
        .msg_control = ancillary, .msg_controllen = sizeof ancillary,
    };
    ssize_t size = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
    *is_over = !size || (size < 0 && errno != EINTR && errno != EAGAIN);
    struct cmsghdr *head = size > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (!head || head->cmsg_type != SCM_RIGHTS)
        return NULL;
    int given[GIVEN], descriptors = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(given, CMSG_DATA(head), (size_t)descriptors * sizeof(int));

    int32_t process = NOT_STARTED;
    pid_t server = getpid();
    if (count < MOST && descriptors > FILES && !(message.msg_flags & MSG_CTRUNC))
        process = fork();
    if (!process)
        return become_new(given, descriptors, server, number);
    send(given[TALK], &process, sizeof process, MSG_NOSIGNAL);
    if (process > 0)
        jobs[count++] = (struct job){given[TALK], process, 0};
    for (int at = process > 0 ? TALK + 1 : TALK; at < descriptors; at++)
        close(given[at]);
    return NULL;
}

static void reap(void) {
    struct signalfd_siginfo ignored;
    while (read(signals, &ignored, sizeof ignored) > 0)
        ;
    int32_t status;
    for (pid_t process; (process = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int at = 0; at < count; at++)
            if (jobs[at].process == process) {
                send(jobs[at].socket, &status, sizeof status, MSG_NOSIGNAL);
                close(jobs[at].socket);
                jobs[at] = jobs[--count];
                break;
            }
}

/* Nobody waits for a job any more: it is asked to end, so that it removes its files, or ended. */
static void end(struct job *job) {
    if (!job->asked_to_end) {
        job->asked_to_end = now();
        kill(job->process, SIGTERM);
        kill(job->process, SIGCONT);
    } else if (now() - job->asked_to_end > GRACE)
        kill(job->process, SIGKILL);
}

static int serve(int argc, char **argv, char **environment) {
    (void)argc, (void)argv;
    int library, builder;
    if (sscanf(getenv(VARIABLE), "%d:%d:%d", &control, &library, &builder) != 3)
        return EXIT_FAILURE;
    unset(environment, VARIABLE);
    unset(environment, "LD_PRELOAD");
    close(library);

    /* Ctrl-C is for the jobs, which are in the same group: their ends must be told. */
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, &given_mask);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    struct sigaction action;
    sigaction(SIGCHLD, NULL, &action);
    int32_t ready = signals < 0 || action.sa_handler != SIG_DFL ? 0 : threads();
    if (send(control, &ready, sizeof ready, MSG_NOSIGNAL) != sizeof ready || ready != 1)
        _exit(EXIT_FAILURE);

    static struct pollfd polled[2 + MOST];
    for (int is_over = 0; !is_over || count;) {
        polled[0] = (struct pollfd){is_over ? -1 : control, POLLIN, 0};
        polled[1] = (struct pollfd){signals, POLLIN, 0};
        for (int at = 0; at < count; at++)
            polled[2 + at] = (struct pollfd){jobs[at].asked_to_end ? -1 : jobs[at].socket, 0, 0};
        if (poll(polled, 2 + (nfds_t)count, LOOK_EVERY) < 0)
            continue;
        is_over |= getppid() != builder;
        for (int at = 0; at < count; at++)
            if (is_over || jobs[at].asked_to_end || polled[2 + at].revents & POLLHUP)
                end(&jobs[at]);
        if (polled[1].revents)
            reap();
        if (!is_over && polled[0].revents) {
            int number;
            char **words = take(&number, &is_over);
            if (words) /* from the same place of the stack as always */
                __attribute__((musttail)) return real_main(number, words, environment);
        }
    }
    _exit(EXIT_SUCCESS);
}

int __libc_start_main(Main *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack) {
    Start *real = (Start *)dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = main;
    return real(getenv(VARIABLE) ? serve : main, argc, argv, init, fini, loader_fini, stack);
}
