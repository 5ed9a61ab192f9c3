// SPDX-License-Identifier: Apache-2.0
#include "tests/support/far_device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/TensorShape.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <malloc.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string_view>
#include <thread>
#include <vector>

#include "ops/cuda/emulated_block.h"
#include "ops/cuda/kernels_emulated.h"
#include "runtime/accelerator.h"
#include "tests/support/test_device_name.h"

namespace tlt::tests {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFar = c10::DeviceType::PrivateUse1;
using ops::cuda::kFarBit;
constexpr int64_t kFarBytes = int64_t{64} << 30;

FarCounts counts;
Clock::duration seconds_per_operation{};
Clock::time_point busy_until;  // end of the work that was launched
thread_local c10::DeviceIndex current = 0;
int64_t allocated_bytes = 0;

// The operations of a graph, and the tensors that they made.
struct Tape {
  std::vector<std::function<void()>> operations;
  std::vector<at::Tensor> made;
  // Arguments of ATen's operations, which run while they are recorded, and what they held.
  std::vector<std::pair<at::Tensor, at::Tensor>> before;
};
Tape* tape = nullptr;  // of the graph that is being captured

void count_operation() {
  if (tape) return;  // recorded, not run
  ++counts.operations;
  if (seconds_per_operation.count() > 0)
    busy_until = std::max(busy_until, Clock::now()) + seconds_per_operation;
}

// Counts an operation that has been run; `again` repeats it.
template <class Again>
void launched(const Again& again) {
  count_operation();
  if (tape) tape->operations.push_back(again);
}

void* real(const void* address) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) & ~kFarBit);
}

bool is_far(const at::Tensor& tensor) { return tensor.device().type() == kFar; }

// --- copies from and to pinned memory, which the host does not wait for ---

struct PinnedCopy {
  at::Tensor host, values;  // `values` are those of its start
  bool is_download = false;
};
// Begin and bytes of each piece. Both stay until the program ends: tensors may be dropped later.
auto& pinned_pieces = *new std::map<const char*, size_t>;
auto& under_way = *new std::deque<PinnedCopy>;  // those that the host has not waited for, in order
int64_t started_copies = 0;

bool is_pinned(const at::Tensor& tensor) {
  const auto* address = static_cast<const char*>(tensor.const_data_ptr());
  auto piece = pinned_pieces.upper_bound(address);
  if (piece == pinned_pieces.begin()) return false;
  --piece;
  return address < piece->first + piece->second;
}

// `there`: the device's memory. What the host reads before it waits is NaN.
void start_pinned_copy(const at::Tensor& host, const at::Tensor& there, bool is_download) {
  TORCH_CHECK(!tape && host.is_contiguous() && host.scalar_type() == there.scalar_type() &&
                  host.sizes() == there.sizes(),
              "a copy of pinned memory ", host.sizes(), " that needs the host");
  if (!is_download) there.copy_(host);
  under_way.push_back({host, there.clone(), is_download});
  if (is_download) std::memset(host.mutable_data_ptr(), 0xff, host.nbytes());
  ++started_copies;
}

// The host has waited for the first `copies` ones.
void end_pinned_copies(int64_t copies) {
  while (started_copies - std::ssize(under_way) < copies) {
    const PinnedCopy copy = under_way.front();
    under_way.pop_front();
    if (copy.is_download)
      copy.host.copy_(copy.values);
    else
      TORCH_CHECK(std::memcmp(copy.host.const_data_ptr(), copy.values.const_data_ptr(),
                              copy.host.nbytes()) == 0,
                  "pinned memory has changed during its copy to the device");
  }
}

void check_that_the_host_may_wait() {
  TORCH_CHECK(!tape, "the host waits for the device, or copies, while a graph is captured");
}

void wait() {
  check_that_the_host_may_wait();
  if (seconds_per_operation.count() > 0) std::this_thread::sleep_until(busy_until);
  end_pinned_copies(started_copies);
}

// When the work before it ends, and the pinned copies before it.
struct Event {
  Clock::time_point end;
  int64_t copies = 0;
};

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kFar, current);
    if (bytes == 0) return {nullptr, nullptr, &release, device};
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    TORCH_CHECK(memory != nullptr, "no memory for ", bytes, " bytes");
    allocated_bytes += static_cast<int64_t>(malloc_usable_size(memory));
    std::memset(memory, 0xff, bytes);
    void* far = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(memory) | kFarBit);
    return {far, far, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(real(to), real(from), bytes);
  }

 private:
  static void release(void* address) {
    allocated_bytes -= static_cast<int64_t>(malloc_usable_size(real(address)));
    std::free(real(address));
  }
};
Allocator allocator;

// One stream.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kFar; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kFar, current}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < kFarDevices, "no device ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return kFarDevices; }
  void synchronizeDevice(c10::DeviceIndex) const override { synchronize(); }
  void synchronizeStream(const c10::Stream&) const override { synchronize(); }

  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    if (!*event) *event = new Event;
    *static_cast<Event*>(*event) = {std::max(busy_until, Clock::now()), started_copies};
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override {
    return static_cast<Event*>(event)->end <= Clock::now();
  }
  void synchronizeEvent(void* event) const override {
    ++counts.synchronizations;
    check_that_the_host_may_wait();
    std::this_thread::sleep_until(static_cast<Event*>(event)->end);
    end_pinned_copies(static_cast<Event*>(event)->copies);
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(to)->end -
                                                     static_cast<Event*>(from)->end)
        .count();
  }

 private:
  static void synchronize() {
    ++counts.synchronizations;
    wait();
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

// The same memory as a tensor of the CPU; other tensors as they are.
at::Tensor near(const at::Tensor& tensor) {
  if (!is_far(tensor)) return tensor;
  const auto options = tensor.options().device(at::kCPU);
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), options);
  return at::from_blob(real(tensor.data_ptr()), tensor.sizes(), tensor.strides(), options);
}

at::Tensor empty_far(at::IntArrayRef sizes, at::ScalarType type) {
  return at::detail::empty_generic(
      sizes, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type, std::nullopt);
}

// A new tensor, whose memory stays as long as the graph that is being captured.
at::Tensor kept(const at::Tensor& made) {
  if (tape) tape->made.push_back(made);
  return made;
}

at::Tensor to_far(const at::Tensor& result) {
  at::Tensor out = empty_far(result.sizes(), result.scalar_type());
  near(out).copy_(result);
  return kept(out);
}

// A tensor as it is now: a view of the caller's may have another size when a graph is replayed.
struct Seen {
  explicit Seen(const at::Tensor& tensor) : cpu(near(tensor)), owner(tensor.storage()) {}
  at::Tensor cpu;
  c10::Storage owner;
};

// A new tensor on the device of `like` with the values that `work` returns.
template <class Work>
at::Tensor launch_new(const at::Tensor& like, const Work& work) {
  const c10::DeviceGuard guard(like.device());
  const at::Tensor out = to_far(work());
  launched([out, work] { near(out).copy_(work()); });
  return out;
}

// --- what a backend must have ---

at::Tensor empty_memory_format(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                               std::optional<at::Layout>, std::optional<at::Device> device,
                               std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return kept(at::detail::empty_generic(sizes, &allocator,
                                        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                        type.value_or(at::kFloat), format));
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return kept(at::detail::empty_strided_generic(sizes, strides, &allocator,
                                                c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                type.value_or(at::kFloat)));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (is_far(from) && is_far(to)) {
    far_launch([from = Seen(from), to = Seen(to)] { to.cpu.copy_(from.cpu); });
    return to;
  }
  ++(is_far(to) ? counts.uploads : counts.downloads);
  if (!is_far(to)) counts.downloaded_bytes += static_cast<int64_t>(from.nbytes());
  if (const at::Tensor& host = is_far(to) ? from : to; non_blocking && is_pinned(host)) {
    start_pinned_copy(host, near(is_far(to) ? to : from), /*is_download=*/!is_far(to));
    return to;
  }
  wait();
  near(to).copy_(near(from));
  return to;
}

const at::Tensor& resize_far(const at::Tensor& self, at::IntArrayRef sizes,
                             std::optional<at::MemoryFormat>) {
  auto* impl = self.unsafeGetTensorImpl();
  const size_t bytes =
      static_cast<size_t>(c10::multiply_integers(sizes)) * static_cast<size_t>(self.element_size());
  if (bytes > impl->storage().nbytes()) {
    impl->unsafe_storage().set_data_ptr_noswap(allocator.allocate(bytes));
    impl->unsafe_storage().set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) resize_far(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  ++counts.downloads;
  wait();
  return near(self).item();
}

// --- operations whose rows do not depend on each other ---

// out[m, n] = a[m, 0] b[0, n] + a[m, 1] b[1, n] + …, in this order.
__attribute__((target_clones("avx512f", "avx2", "default"))) void multiply(const float* a,
                                                                           const float* b,
                                                                           float* out, int64_t m,
                                                                           int64_t k, int64_t n) {
  constexpr int64_t kRows = 4, kColumns = 32;  // of a tile, whose sums are in registers
  for (int64_t column = 0; column < n; column += kColumns)
    for (int64_t row = 0; row < m; row += kRows) {
      const int64_t rows = std::min(kRows, m - row), columns = std::min(kColumns, n - column);
      float sums[kRows][kColumns] = {};
      if (columns == kColumns) {
        const float* left[kRows];  // the last row again in place of those that there are not
        for (int64_t r = 0; r < kRows; ++r) left[r] = a + std::min(row + r, m - 1) * k;
        for (int64_t i = 0; i < k; ++i)
          for (int64_t r = 0; r < kRows; ++r)
            for (int64_t c = 0; c < kColumns; ++c) sums[r][c] += left[r][i] * b[i * n + column + c];
      } else {
        for (int64_t i = 0; i < k; ++i)
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < columns; ++c)
              sums[r][c] += a[(row + r) * k + i] * b[i * n + column + c];
      }
      for (int64_t r = 0; r < rows; ++r)
        std::copy_n(sums[r], columns, out + (row + r) * n + column);
    }
}

std::function<int64_t(int64_t rows, int64_t sum)> first_of_sum;  // set_far_sum_order()

// [B, M, K] x [B, K, N] in float32.
at::Tensor products(at::Tensor left, at::Tensor right) {
  const int64_t m = left.size(1), k = left.size(2), n = right.size(2);
  if (first_of_sum && k > 0) {
    const int64_t first = first_of_sum(m, k) % k;
    left = left.roll(-first, 2);
    right = right.roll(-first, 1);
  }
  left = left.to(at::kFloat).contiguous();
  right = right.to(at::kFloat).contiguous();
  at::Tensor out = at::empty({left.size(0), m, n}, at::kFloat);
  for (int64_t i = 0; i < left.size(0); ++i)
    multiply(left.const_data_ptr<float>() + i * m * k, right.const_data_ptr<float>() + i * k * n,
             out.mutable_data_ptr<float>() + i * m * n, m, k, n);
  return out;
}

// out = a b (+ addend), rounded once. [B, M, K] x [B, K, N].
at::Tensor& products_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                          const at::Tensor& addend = {}) {
  TORCH_CHECK(is_far(a) && is_far(b) && is_far(out), "a product of tensors of two devices");
  TORCH_CHECK(a.scalar_type() == b.scalar_type() &&
                  (out.scalar_type() == a.scalar_type() || out.scalar_type() == at::kFloat),
              "a product of ", a.scalar_type(), " in ", out.scalar_type());
  const auto run = [to = Seen(out), left = Seen(a), right = Seen(b),
                    add = Seen(addend.defined() ? addend : out), adds = addend.defined()] {
    const bool batched = left.cpu.dim() == 3;
    at::Tensor sum = batched ? products(left.cpu, right.cpu)
                             : products(left.cpu.unsqueeze(0), right.cpu.unsqueeze(0)).squeeze(0);
    to.cpu.copy_(adds ? sum + add.cpu : sum);
  };
  far_launch(run);
  return out;
}

at::Tensor new_product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  const c10::DeviceGuard guard(a.device());
  at::Tensor out = a.dim() == 3 ? empty_far({a.size(0), a.size(1), b.size(2)}, type)
                                : empty_far({a.size(0), b.size(1)}, type);
  kept(out);
  return products_into(out, a, b);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  return new_product(a, b, a.scalar_type());
}
at::Tensor& product_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  return products_into(out, a, b);
}
at::Tensor& product_dtype_out(const at::Tensor& a, const at::Tensor& b, at::ScalarType type,
                              at::Tensor& out) {
  TORCH_CHECK(type == out.scalar_type(), "out is ", out.scalar_type());
  return products_into(out, a, b);
}
at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                      const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  TORCH_CHECK(beta.toDouble() == 1 && alpha.toDouble() == 1 && self.sizes() == out.sizes());
  return products_into(out, a, b, self);
}
at::Tensor& addmm_dtype_out(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                            at::ScalarType type, const at::Scalar& beta, const at::Scalar& alpha,
                            at::Tensor& out) {
  TORCH_CHECK(type == out.scalar_type() && type == self.scalar_type(), "out is ",
              out.scalar_type());
  return addmm_out(self, a, b, beta, alpha, out);
}

template <class Body>
at::Tensor for_elements(const at::Tensor& x, const Body& body) {
  return launch_new(x, [x, body] {
    const at::Tensor from = near(x).to(at::kFloat).contiguous();
    at::Tensor out = at::empty_like(from);
    const float* in = from.const_data_ptr<float>();
    float* to = out.mutable_data_ptr<float>();
    for (int64_t i = 0; i < from.numel(); ++i) to[i] = body(in[i]);
    return out.to(x.scalar_type());
  });
}

float sigmoid_of(float x) { return 1 / (1 + std::exp(-x)); }
at::Tensor exp(const at::Tensor& x) {
  return for_elements(x, [](float value) { return std::exp(value); });
}
at::Tensor sigmoid(const at::Tensor& x) { return for_elements(x, sigmoid_of); }
at::Tensor silu(const at::Tensor& x) {
  return for_elements(x, [](float value) { return value * sigmoid_of(value); });
}

// Over the last dimension.
at::Tensor softmax(const at::Tensor& x, int64_t dimension, bool /*half_to_float*/) {
  TORCH_CHECK(x.scalar_type() == at::kFloat && (dimension == -1 || dimension == x.dim() - 1),
              "softmax over dimension ", dimension, " of ", x.sizes());
  return launch_new(x, [x] {
    const at::Tensor from = near(x).contiguous();
    at::Tensor out = at::empty_like(from);
    const int64_t columns = x.size(-1);
    for (int64_t row = 0; row < x.numel() / std::max<int64_t>(columns, 1); ++row) {
      const float* in = from.const_data_ptr<float>() + row * columns;
      float* to = out.mutable_data_ptr<float>() + row * columns;
      const float top = *std::max_element(in, in + columns);
      float sum = 0;
      for (int64_t i = 0; i < columns; ++i) sum += to[i] = std::exp(in[i] - top);
      for (int64_t i = 0; i < columns; ++i) to[i] /= sum;
    }
    return out;
  });
}

// --- all others: ATen's CPU kernels on the same memory, so views and in-place operations work ---

struct Opened {
  at::Tensor far, cpu;
};

// Operations whose CUDA kernels add with atomics: a second run would differ.
constexpr std::string_view kAnyOrder[] = {"index_add",    "scatter_add", "scatter_reduce",
                                          "index_reduce", "put",         "bincount",
                                          "histc",        "cumsum"};

class Call {
 public:
  Call(const c10::OperatorHandle& operation, torch::jit::Stack& stack)
      : operation_(operation), stack_(stack) {}

  void run() {
    TORCH_CHECK(std::ranges::find(kAnyOrder, base_name()) == std::end(kAnyOrder), base_name(),
                " adds in any order on CUDA");
    count_operation();
    const size_t arguments = operation_.schema().arguments().size();
    for (size_t i = stack_.size() - arguments; i < stack_.size(); ++i) open_argument(stack_[i]);
    const c10::OptionalDeviceGuard guard(device_);
    torch::jit::Stack inputs;
    if (tape) inputs.assign(stack_.end() - static_cast<int64_t>(arguments), stack_.end());
    operation_.callBoxed(stack_);
    resize_outputs();
    const size_t results = operation_.schema().returns().size();
    for (size_t i = stack_.size() - results; i < stack_.size(); ++i) return_result(stack_[i]);
    if (tape) tape->operations.push_back(again(inputs, results));
  }

 private:
  // Without "aten::" and the underscore of in-place operations.
  std::string_view base_name() const {
    std::string_view name = operation_.schema().name();
    name.remove_prefix(name.find("::") + 2);
    if (name.ends_with('_')) name.remove_suffix(1);
    return name;
  }

  at::Tensor open(const at::Tensor& tensor) {
    const auto& name = operation_.schema().name();
    if (!is_far(tensor)) {
      TORCH_CHECK(tensor.dim() == 0, name, ": a tensor of the CPU and one of ", *device_or_far());
      return tensor;
    }
    TORCH_CHECK(!device_ || *device_ == tensor.device(), name, ": tensors of two devices");
    device_ = tensor.device();
    opened_.emplace_back(tensor, near(tensor));
    if (tape) tape->before.emplace_back(opened_.back().cpu, opened_.back().cpu.clone());
    return opened_.back().cpu;
  }
  std::optional<c10::Device> device_or_far() const {
    return device_ ? device_ : std::optional(c10::Device(kFar, current));
  }

  void open_argument(c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) {
      value = open(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list = value.toTensorVector();
      for (at::Tensor& tensor : list) tensor = open(tensor);
      value = c10::IValue(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        list.push_back(tensor && tensor->defined() ? std::optional(open(*tensor)) : tensor);
      value = c10::IValue(list);
    } else if (value.isDevice()) {
      value = c10::Device(at::kCPU);
    }
  }

  // Repeats the call.
  std::function<void()> again(const torch::jit::Stack& inputs, size_t results) const {
    const torch::jit::Stack outputs(stack_.end() - static_cast<int64_t>(results), stack_.end());
    return [operation = operation_, inputs, outputs, opened = opened_] {
      torch::jit::Stack stack = inputs;
      operation.callBoxed(stack);
      for (size_t i = 0; i < outputs.size(); ++i) refill(outputs[i], stack[i], opened);
    };
  }

  // The values of a result that is none of the arguments.
  static void refill(const c10::IValue& output, const c10::IValue& value,
                     const std::vector<Opened>& opened) {
    if (output.isTensorList()) {
      const std::vector<at::Tensor> to = output.toTensorVector(), from = value.toTensorVector();
      for (size_t i = 0; i < to.size(); ++i) near(to[i]).copy_(from[i]);
    } else if (output.toTensor().defined()) {
      for (const auto& [far, cpu] : opened)
        if (cpu.is_same(value.toTensor())) return;
      near(output.toTensor()).copy_(value.toTensor());
    }
  }

  // An `out` that the operation gave its size.
  void resize_outputs() {
    for (const auto& [far, cpu] : opened_) {
      if (cpu.sizes() == far.sizes()) continue;
      TORCH_CHECK(!tape, "a graph changes the size of a tensor");
      TORCH_CHECK(far.numel() == 0, operation_.schema().name(), " changes the size of a tensor");
      resize_far(far, cpu.sizes(), std::nullopt);
      near(far).copy_(cpu);
    }
  }

  at::Tensor result(const at::Tensor& out) const {
    if (!out.defined()) return out;
    for (const auto& [far, cpu] : opened_)
      if (cpu.unsafeGetTensorImpl() == out.unsafeGetTensorImpl()) return far;
    for (const auto& [far, cpu] : opened_)
      TORCH_CHECK(!out.storage().data() || out.storage().data() != cpu.storage().data(),
                  operation_.schema().name(), " returns a view");
    return to_far(out);
  }
  void return_result(c10::IValue& value) {
    if (value.isTensor()) {
      value = result(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list = value.toTensorVector();
      for (at::Tensor& tensor : list) tensor = result(tensor);
      value = c10::IValue(list);
    } else {  // a number or a truth value, which the host waits for
      ++counts.downloads;
      wait();
    }
  }

  const c10::OperatorHandle& operation_;
  torch::jit::Stack& stack_;
  std::optional<c10::Device> device_;
  std::vector<Opened> opened_;
};

void fallback(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  Call(operation, *stack).run();
}

// --- graphs ---

class FarGraph final : public runtime::Graph {
 public:
  void replay() override {
    for (const auto& operation : tape_.operations) {
      operation();
      count_operation();
    }
  }
  Tape& tape() { return tape_; }

 private:
  Tape tape_;
};

class FarAccelerator final : public runtime::Accelerator {
 public:
  std::unique_ptr<runtime::Graph> capture(at::Device, const std::function<void()>& body) override {
    TORCH_CHECK(!tape, "a graph is being captured");
    auto graph = std::make_unique<FarGraph>();
    tape = &graph->tape();
    try {
      body();
    } catch (...) {
      tape = nullptr;
      restore(graph->tape());
      throw;
    }
    tape = nullptr;
    restore(graph->tape());
    for (const at::Tensor& made : graph->tape().made)
      if (made.is_floating_point()) near(made).fill_(NAN);
    return graph;
  }

  // What was launched has not run.
  static void restore(Tape& recorded) {
    for (size_t i = recorded.before.size(); i-- > 0;)
      recorded.before[i].first.copy_(recorded.before[i].second);
    recorded.before.clear();
  }

  runtime::DeviceMemory memory(at::Device) override {
    return {.free_bytes = kFarBytes - allocated_bytes, .total_bytes = kFarBytes};
  }

  at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type) override {
    const at::Tensor memory = at::empty(sizes, type);
    pinned_pieces[static_cast<const char*>(memory.const_data_ptr())] = memory.nbytes();
    const auto release = [memory](void* address) {
      pinned_pieces.erase(static_cast<const char*>(address));
    };
    return at::from_blob(memory.data_ptr(), sizes, release, memory.options());
  }
};

const bool installed = [] {
  static Hooks hooks;
  static FarAccelerator accelerator;
  runtime::register_accelerator(kFar, accelerator);
  c10::SetAllocator(kFar, &allocator);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::register_privateuse1_backend("far");
  ops::cuda::set_launch_hook(&far_launch);
  if (!std::getenv(tests::kWithoutKernels)) ops::set_device_kernels(kFar, &ops::emulated_kernels());
  return true;
}();

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty_memory_format);
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", local_scalar);
  library.impl("resize_", resize_far);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  for (const char* name : {"mm", "bmm"}) {
    const std::string base = name;
    library.impl(base.c_str(), product);
    library.impl((base + ".out").c_str(), product_out);
    library.impl((base + ".dtype").c_str(), new_product);
    library.impl((base + ".dtype_out").c_str(), product_dtype_out);
  }
  library.impl("addmm.out", addmm_out);
  library.impl("addmm.dtype_out", addmm_dtype_out);
  library.impl("exp", exp);
  library.impl("sigmoid", sigmoid);
  library.impl("silu", silu);
  library.impl("_softmax", softmax);
}

const FarCounts& far_counts() { return counts; }

int64_t far_copies_under_way() { return std::ssize(under_way); }

void far_launch(const std::function<void()>& work) {
  if (!tape) work();  // a graph's is only recorded
  launched(work);
}

void* far_address(const void* address) { return real(address); }

void set_far_sum_order(std::function<int64_t(int64_t rows, int64_t sum)> first) {
  first_of_sum = std::move(first);
}

void set_far_seconds_per_operation(double seconds) {
  seconds_per_operation =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace tlt::tests
