/* Makes every sync of a process wait first, as a volume in a cloud does: SLOW_SYNC_MICROSECONDS, with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_first(void) {
  const char *microseconds = getenv("SLOW_SYNC_MICROSECONDS");
  if (microseconds != NULL) usleep((useconds_t)atoi(microseconds));
}

int fsync(int file) {
  static int (*next)(int);
  if (next == NULL) next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  wait_first();
  return next(file);
}

int fdatasync(int file) {
  static int (*next)(int);
  if (next == NULL) next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  wait_first();
  return next(file);
}
