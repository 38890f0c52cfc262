/* Preloaded into a server: its wall clock is ahead by as many seconds as the file says which
 * SERVER_CLOCK names, or behind; other clocks go on as they do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static long ahead(void) {
    char text[32] = {0};
    int file = open(getenv("SERVER_CLOCK"), O_RDONLY);
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}

int gettimeofday(struct timeval *time, void *zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int answer = real(time, zone);
    time->tv_sec += ahead();
    return answer;
}
