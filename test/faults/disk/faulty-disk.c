/*
 * The fault of a process's disk. The first letter in the file at FAULTY_DISK selects it:
 * `fail`: syncs return EIO. `once`: the next sync returns EIO, and later syncs of this handle report success and do nothing, like a
 * kernel that dropped the pages it could not write. `lie`: syncs do nothing. `write`: writes to regular files return EIO. `quota`
 * and a number: writes that would give the files of its own folder more bytes together return EDQUOT.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HANDLES 4096
static char is_lost[HANDLES];

/* The first letter of the fault, and its number. */
static char fault(long long *number) {
  char text[32] = "";
  const char *path = getenv("FAULTY_DISK");
  int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  if (read(file, text, sizeof text - 1) < 1) text[0] = 0;
  close(file);
  *number = atoll(text + strcspn(text, " "));
  return text[0];
}

static int answer(int error) {
  errno = error;
  return -1;
}

static int sync_as_told(const char *name, int file) {
  int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  long long number;
  char told = fault(&number);
  if (told == 'l' || (file >= 0 && file < HANDLES && is_lost[file])) return 0;
  if (told == 'f') return answer(EIO);
  if (told == 'o') {
    unlink(getenv("FAULTY_DISK"));
    if (file >= 0 && file < HANDLES) is_lost[file] = 1;
    return answer(EIO);
  }
  return next(file);
}

/* Whether the files of the fault's folder, of which this is one, would have more than `most` bytes. */
static int exceeds(int file, off_t growth, long long most) {
  char link[64], path[PATH_MAX] = "", folder[PATH_MAX] = "";
  struct stat about;
  struct dirent *entry;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (readlink(link, path, sizeof path - 1) < 0) return 0;
  snprintf(folder, sizeof folder, "%s", getenv("FAULTY_DISK"));
  *strrchr(folder, '/') = 0;
  *strrchr(path, '/') = 0;
  if (strcmp(path, folder) != 0) return 0;
  DIR *entries = opendir(folder);
  while (entries != NULL && (entry = readdir(entries)) != NULL)
    if (fstatat(dirfd(entries), entry->d_name, &about, 0) == 0 && S_ISREG(about.st_mode)) growth += about.st_size;
  if (entries != NULL) closedir(entries);
  return growth > most;
}

/* The error of a write up to `end`, or 0. */
static int error_of_write(int file, off_t end) {
  struct stat about;
  long long number;
  int before = errno, error = 0;
  if (fstat(file, &about) == 0 && S_ISREG(about.st_mode)) {
    char told = fault(&number);
    if (told == 'w') error = EIO;
    if (told == 'q' && end > about.st_size && exceeds(file, end - about.st_size, number)) error = EDQUOT;
  }
  errno = before;
  return error;
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
  off_t at = fcntl(file, F_GETFL) & O_APPEND ? lseek(file, 0, SEEK_END) : lseek(file, 0, SEEK_CUR);
  int error = error_of_write(file, at + (off_t)count);
  return error ? answer(error) : next(file, bytes, count);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) {
  ssize_t (*next)(int, const void *, size_t, off_t) =
      (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
  int error = error_of_write(file, at + (off_t)count);
  return error ? answer(error) : next(file, bytes, count, at);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
  ssize_t (*next)(int, const void *, size_t, off64_t) =
      (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
  int error = error_of_write(file, at + (off_t)count);
  return error ? answer(error) : next(file, bytes, count, at);
}
