/*
 * The fault of a process's disk. The first letter in the file at FAULTY_DISK selects it:
 * `fail`: syncs return EIO. `once`: the next sync returns EIO, and later syncs of this handle report success and do nothing, like a
 * kernel that dropped the pages it could not write. `lie`: syncs do nothing. `write`: writes to regular files return EIO.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define HANDLES 4096
static char is_lost[HANDLES];

static char fault(void) {
  char first = 0;
  const char *path = getenv("FAULTY_DISK");
  int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  if (read(file, &first, 1) != 1) first = 0;
  close(file);
  return first;
}

static int answer_eio(void) {
  errno = EIO;
  return -1;
}

static int sync_as_told(const char *name, int file) {
  int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  char told = fault();
  if (told == 'l' || (file >= 0 && file < HANDLES && is_lost[file])) return 0;
  if (told == 'f') return answer_eio();
  if (told == 'o') {
    unlink(getenv("FAULTY_DISK"));
    if (file >= 0 && file < HANDLES) is_lost[file] = 1;
    return answer_eio();
  }
  return next(file);
}

static int fails_to_write(int file) {
  struct stat about;
  int before = errno;
  int fails = fstat(file, &about) == 0 && S_ISREG(about.st_mode) && fault() == 'w';
  errno = before;
  return fails;
}

int fsync(int file) { return sync_as_told("fsync", file); }
int fdatasync(int file) { return sync_as_told("fdatasync", file); }

int close(int file) {
  int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
  if (file >= 0 && file < HANDLES) is_lost[file] = 0;
  return next(file);
}

ssize_t write(int file, const void *bytes, size_t count) {
  ssize_t (*next)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  return fails_to_write(file) ? answer_eio() : next(file, bytes, count);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) {
  ssize_t (*next)(int, const void *, size_t, off_t) =
      (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
  return fails_to_write(file) ? answer_eio() : next(file, bytes, count, at);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
  ssize_t (*next)(int, const void *, size_t, off64_t) =
      (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
  return fails_to_write(file) ? answer_eio() : next(file, bytes, count, at);
}
