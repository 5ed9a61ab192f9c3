// A libcuda.so.1 for tests, which answers what the environment variable TLT_TEST_DRIVER says:
// "13000 2 90" is a driver for CUDA 13.0 with two cards of sm_90.
//
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Answers {
  int version = 0, cards = 0, capability = 0;
};

Answers answers() {
  Answers read;
  const char* text = std::getenv("TLT_TEST_DRIVER");
  if (text != nullptr) std::sscanf(text, "%d %d %d", &read.version, &read.cards, &read.capability);
  return read;
}

constexpr int kSuccess = 0, kNoDevice = 100;
constexpr int kMajorAttribute = 75;

}  // namespace

extern "C" {

int cuInit(unsigned) { return answers().cards > 0 ? kSuccess : kNoDevice; }

int cuDriverGetVersion(int* version) {
  *version = answers().version;
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  *count = answers().cards;
  return kSuccess;
}

int cuDeviceGet(int* device, int index) {
  *device = index;
  return kSuccess;
}

int cuDeviceGetName(char* name, int bytes, int device) {
  std::snprintf(name, static_cast<size_t>(bytes), "Test card %d", device);
  return kSuccess;
}

int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, device + 1, 16);
  return kSuccess;
}

int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = size_t{80} << 30;
  return kSuccess;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  const int capability = answers().capability;
  *value = attribute == kMajorAttribute ? capability / 10 : capability % 10;
  return kSuccess;
}

}  // extern "C"
