/* A library that dies in many ways, on the caller's thread or on threads that it starts. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int *volatile nowhere;
static sem_t go;
static pthread_barrier_t together;
static pthread_key_t key;

static volatile int zero;

__attribute__((noinline)) static int overflow(int depth) {
    volatile char frame[1024];
    frame[depth % 1024] = (char)depth;
    return overflow(depth + 1) + frame[(depth + 1) % 1024];
}

static void crash(void *unused) {
    (void)unused;
    *nowhere = 1;
}

static void crash_at_exit(void) {
    crash(NULL);
}

static void *crash_together(void *unused) {
    pthread_barrier_wait(&together);
    crash(unused);
    return NULL;
}

static void *crash_later(void *unused) {
    while (sem_wait(&go) != 0) {
    }
    crash(unused);
    return NULL;
}

static void *wait_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

static void start(void *(*routine)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, routine, argument) != 0) _exit(99);
    pthread_detach(thread);
}

static void do_it(const char *what) {
    if (!strcmp(what, "segv")) {
        crash(NULL);
    } else if (!strcmp(what, "bus")) {
        volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memfd_create("empty", 0), 0);
        (void)page[0];
    } else if (!strcmp(what, "abort")) {
        abort();
    } else if (!strcmp(what, "ill")) {
#if defined(__x86_64__)
        __asm__ volatile("ud2");
#endif
        raise(SIGILL);
    } else if (!strcmp(what, "fpe")) {
        zero = 1 / zero;
        raise(SIGFPE);
    } else if (!strcmp(what, "sys")) {
        raise(SIGSYS);
    } else if (!strcmp(what, "trap")) {
#if defined(__x86_64__)
        __asm__ volatile("int3");
#else
        raise(SIGTRAP);
#endif
    } else if (!strcmp(what, "overflow")) {
        zero = overflow(0);
    } else if (!strcmp(what, "exit")) {
        exit(0);
    } else if (!strcmp(what, "_exit")) {
        _exit(0);
    } else if (!strcmp(what, "end thread")) {
        pthread_exit(NULL);
    } else if (!strcmp(what, "be cancelled")) {
        pthread_cancel(pthread_self());
        pthread_testcancel();
    } else if (!strcmp(what, "crash at thread end")) {
        pthread_key_create(&key, crash);
        pthread_setspecific(key, &key);
    } else if (!strcmp(what, "fork and crash")) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) crash(NULL);
        waitpid(child, &status, 0);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV) _exit(98);
    } else if (!strcmp(what, "fork and exit")) {
        pid_t child = fork();
        if (child == 0) exit(0);
        waitpid(child, NULL, 0);
    } else if (!strcmp(what, "clone and crash")) {
        int status = 0;
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) crash(NULL);
        waitpid(child, &status, 0);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV) _exit(98);
    } else if (!strcmp(what, "fork and go on")) {
        pid_t child = fork();
        if (child != 0) waitpid(child, NULL, 0);
    } else if (!strcmp(what, "crash at the end of exit")) {
        atexit(crash_at_exit);
    } else if (!strcmp(what, "start one that crashes later")) {
        sem_init(&go, 0, 0);
        start(crash_later, NULL);
    } else if (!strcmp(what, "let it crash")) {
        sem_post(&go);
        wait_for_ever(NULL);
    } else if (!strcmp(what, "crash eightfold")) {
        pthread_barrier_init(&together, NULL, 8);
        for (int i = 0; i < 8; i++) start(crash_together, NULL);
        wait_for_ever(NULL);
    } else if (!strcmp(what, "start a thousand")) {
        for (int i = 0; i < 1000; i++) {
            pthread_attr_t small;
            pthread_t thread;
            pthread_attr_init(&small);
            pthread_attr_setstacksize(&small, 64 * 1024);
            if (pthread_create(&thread, &small, wait_for_ever, NULL) != 0) _exit(97);
        }
    } else if (!strcmp(what, "refused thread")) {
        pthread_attr_t huge;
        pthread_t thread;
        pthread_attr_init(&huge);
        pthread_attr_setstacksize(&huge, (size_t)1 << 46);
        if (pthread_create(&thread, &huge, wait_for_ever, NULL) == 0) _exit(96);
    } else if (strcmp(what, "return") != 0) {
        _exit(95);
    }
}

struct job {
    const char *what;
    int depth;
};

void plugin_run(const char *what, int depth);

static void *run_job(void *argument) {
    struct job *job = argument;
    plugin_run(job->what, job->depth);
    return argument;
}

/* Does `what` on a thread that is `depth` generations below the caller's, and waits for it. */
void plugin_run(const char *what, int depth) {
    if (depth == 0) {
        do_it(what);
        return;
    }
    struct job job = {what, depth - 1};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_job, &job) != 0) _exit(94);
    pthread_join(thread, NULL);
}
