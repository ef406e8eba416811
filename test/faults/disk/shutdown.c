/* Ends an ext4 file system as a power cut does: it writes nothing more, not even its own log. Needs Linux and root. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>

/* EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH. */
int main(int count, char **arguments) {
  uint32_t without_flushing = 2;
  int folder = count == 2 ? open(arguments[1], O_RDONLY) : -1;
  if (folder < 0 || ioctl(folder, 0x8004587D, &without_flushing) != 0) {
    perror("shutdown");
    return 1;
  }
  return 0;
}
