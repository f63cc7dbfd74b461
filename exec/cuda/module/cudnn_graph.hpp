#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/cuda/module/cudnn_api.hpp"

namespace stretto::cuda {

// cuDNN's message when it refused something.
struct CudnnError {
  std::string what;
};
// Throws CudnnError.
void check_cudnn(cudnnStatus_t status);

// Owns a descriptor of cuDNN's backend API. Functions throw CudnnError.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, &value, 1);
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values, std::int64_t count) {
    check_cudnn(cudnn().BackendSetAttribute(handle_, name, type, count, values));
  }
  template <class T>
  T get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
    T value{};
    get(name, type, &value, 1);
    return value;
  }
  // Reads at most `room` values; returns how many there are. Descriptors among them must have been created.
  template <class T>
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T* values,
                   std::int64_t room) const {
    std::int64_t count = 0;
    check_cudnn(cudnn().BackendGetAttribute(handle_, name, type, room, &count, values));
    return count;
  }
  void finalize() { check_cudnn(cudnn().BackendFinalize(handle_)); }
  cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

using CudnnDims = std::array<std::int64_t, 4>;

// A graph of operations on tensors of four dimensions, as cuDNN fuses them. Owns them; functions throw CudnnError. An
// execution names the tensors by the ids with which they were made. Strides are in elements; memory is aligned to 16
// bytes. Sums and products are in f32, whatever the tensors' types, but for those of integers. For one thread.
class CudnnGraph {
 public:
  using Tensor = cudnnBackendDescriptor_t;
  static constexpr std::int64_t kFirstOwnId = 100;  // the graph itself uses ids from here on

  Tensor tensor(std::int64_t id, CudnnDims dims, CudnnDims strides, cudnnDataType_t type, bool is_virtual = false,
                bool by_value = false);
  // A tensor that never exists in memory; contiguous.
  Tensor between(CudnnDims dims, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Tensor between(CudnnDims dims, CudnnDims strides, cudnnDataType_t type);
  // One element: an f32 or i32 of the host, passed by value, or an i64 in the device's memory.
  Tensor scalar(std::int64_t id, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Tensor device_integer(std::int64_t id);

  // c = a · b over the last two dimensions; b may have fewer heads, if their number divides that of a.
  void matmul(Tensor a, Tensor b, Tensor c);
  // y = mode(x, b, t); b and t where the mode has them. `axis` is for GEN_INDEX and integers; sums of these are
  // computed in i32.
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y, Tensor b = nullptr, Tensor t = nullptr,
                 std::int64_t axis = -1, bool of_integers = false);
  // Reduces each dimension that is 1 in y, or divides that of x.
  void reduce(cudnnReduceTensorOp_t with, Tensor x, Tensor y);
  // Names the same elements by y's dims and strides.
  void reshape(Tensor x, Tensor y);
  // y = 1 with this probability and 0 otherwise, a pure function of the two integers and the place in y (Philox).
  void bernoulli(double probability, Tensor seed, Tensor offset, Tensor y);
  std::span<const cudnnBackendDescriptor_t> operations() const { return operations_; }

 private:
  CudnnDescriptor& keep(cudnnBackendDescriptorType_t type);
  void finish(CudnnDescriptor& op);

  std::vector<std::unique_ptr<CudnnDescriptor>> kept_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::int64_t next_own_ = kFirstOwnId;
};

}  // namespace stretto::cuda
