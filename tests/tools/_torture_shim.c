// SPDX-License-Identifier: Apache-2.0
//
// Loaded into tlt by torture.py (LD_PRELOAD): a disk that is slow or fails, and a clock that jumps.
//   TORTURE_FOLDER         files below it are on that disk
//   TORTURE_DISK_US        each write and each fsync there takes this much longer
//   TORTURE_FAIL_AT        the n-th such call in a process fails with EIO, and those after it
//   TORTURE_CLOCK_AFTER_MS so long after the first look at the wall clock it
//   TORTURE_CLOCK_JUMP     jumps by this many seconds
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static long number_of(const char* name) {
  const char* text = getenv(name);
  return text ? atol(text) : 0;
}

// Whether the call on this file fails; waits if the disk is slow.
static int fails(int file) {
  static atomic_long calls;
  const char* folder = getenv("TORTURE_FOLDER");
  char link[64], path[4096];
  if (!folder) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  if (strncmp(path, folder, strlen(folder)) != 0) return 0;
  if (number_of("TORTURE_DISK_US")) usleep((useconds_t)number_of("TORTURE_DISK_US"));
  const long fail_at = number_of("TORTURE_FAIL_AT");
  if (fail_at == 0 || atomic_fetch_add(&calls, 1) + 1 < fail_at) return 0;
  errno = EIO;
  return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void* data, size_t size) {
  return fails(file) ? -1 : NEXT(write)(file, data, size);
}
ssize_t pwrite(int file, const void* data, size_t size, off_t place) {
  return fails(file) ? -1 : NEXT(pwrite)(file, data, size, place);
}
ssize_t pwrite64(int file, const void* data, size_t size, off64_t place) {
  return fails(file) ? -1 : NEXT(pwrite64)(file, data, size, place);
}
int fsync(int file) { return fails(file) ? -1 : NEXT(fsync)(file); }
int fdatasync(int file) { return fails(file) ? -1 : NEXT(fdatasync)(file); }

static long jump(void) {
  static atomic_llong first;
  struct timespec now;
  if (!number_of("TORTURE_CLOCK_JUMP")) return 0;
  NEXT(clock_gettime)(CLOCK_MONOTONIC, &now);
  const long long milliseconds = now.tv_sec * 1000LL + now.tv_nsec / 1000000;
  long long expected = 0;
  atomic_compare_exchange_strong(&first, &expected, milliseconds);
  return milliseconds - first >= number_of("TORTURE_CLOCK_AFTER_MS") ? number_of("TORTURE_CLOCK_JUMP") : 0;
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const int code = NEXT(clock_gettime)(clock, time);
  if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += jump();
  return code;
}
int gettimeofday(struct timeval* time, void* zone) {
  const int code = NEXT(gettimeofday)(time, zone);
  if (code == 0) time->tv_sec += jump();
  return code;
}
time_t time(time_t* place) {
  struct timespec now;
  NEXT(clock_gettime)(CLOCK_REALTIME, &now);
  now.tv_sec += jump();
  if (place) *place = now.tv_sec;
  return now.tv_sec;
}
