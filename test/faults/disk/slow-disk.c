/* Makes each sync of a file below the folder SLOW_DISK take 400 ms, with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void wait_first(int file) {
  char link[64], path[PATH_MAX] = "";
  const char *folder = getenv("SLOW_DISK");
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (folder == NULL || readlink(link, path, sizeof path - 1) < 0) return;
  if (strncmp(path, folder, strlen(folder)) == 0) usleep(400000);
}

int fsync(int file) {
  static int (*next)(int);
  if (next == NULL) next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  wait_first(file);
  return next(file);
}

int fdatasync(int file) {
  static int (*next)(int);
  if (next == NULL) next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  wait_first(file);
  return next(file);
}
