#include "exec/cuda/module/cudnn_graph.hpp"

namespace stretto::cuda {

void check_cudnn(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char last[512] = {};
  cudnn().GetLastErrorString(last, sizeof last);
  throw CudnnError{std::string(cudnn().GetErrorString(status)) + (last[0] != 0 ? std::string(", ") + last : "")};
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnn().BackendCreateDescriptor(type, &handle_));
}
CudnnDescriptor::~CudnnDescriptor() { cudnn().BackendDestroyDescriptor(handle_); }

CudnnGraph::Tensor CudnnGraph::tensor(std::int64_t id, CudnnDims dims, CudnnDims strides, cudnnDataType_t type,
                                      bool is_virtual, bool by_value) {
  CudnnDescriptor& t = keep(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const std::int64_t alignment = 16;
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims.data(), 4);
  t.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), 4);
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  t.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
  t.finalize();
  return t.handle();
}

CudnnGraph::Tensor CudnnGraph::between(CudnnDims dims, CudnnDims strides, cudnnDataType_t type) {
  return tensor(next_own_++, dims, strides, type, true);
}

CudnnGraph::Tensor CudnnGraph::between(CudnnDims dims, cudnnDataType_t type) {
  return between(dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}, type);
}

CudnnGraph::Tensor CudnnGraph::scalar(std::int64_t id, cudnnDataType_t type) {
  return tensor(id, {1, 1, 1, 1}, {1, 1, 1, 1}, type, false, true);
}

CudnnGraph::Tensor CudnnGraph::device_integer(std::int64_t id) {
  return tensor(id, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_INT64);
}

void CudnnGraph::matmul(Tensor a, Tensor b, Tensor c) {
  CudnnDescriptor& how = keep(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  how.finalize();
  CudnnDescriptor& op = keep(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, a);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, b);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, c);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, how.handle());
  finish(op);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y, Tensor b, Tensor t, std::int64_t axis,
                           bool of_integers) {
  CudnnDescriptor& how = keep(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  // The types are cudnn-frontend's: engines recognise a causal mask by its form.
  const cudnnDataType_t computed_in = mode == CUDNN_POINTWISE_GEN_INDEX || of_integers ? CUDNN_DATA_INT32
                                      : mode == CUDNN_POINTWISE_CMP_GE                 ? CUDNN_DATA_BOOLEAN
                                                                                       : CUDNN_DATA_FLOAT;
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, computed_in);
  if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  how.finalize();
  CudnnDescriptor& op = keep(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, how.handle());
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, x);
  if (b != nullptr) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, b);
  if (t != nullptr) op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, t);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y);
  finish(op);
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t with, Tensor x, Tensor y) {
  CudnnDescriptor& how = keep(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, with);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  how.finalize();
  CudnnDescriptor& op = keep(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, how.handle());
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, x);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y);
  finish(op);
}

void CudnnGraph::reshape(Tensor x, Tensor y) {
  CudnnDescriptor& op = keep(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, x);
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y);
  finish(op);
}

void CudnnGraph::bernoulli(double probability, Tensor seed, Tensor offset, Tensor y) {
  CudnnDescriptor& how = keep(CUDNN_BACKEND_RNG_DESCRIPTOR);
  how.set(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION, CUDNN_RNG_DISTRIBUTION_BERNOULLI);
  how.set(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, CUDNN_TYPE_DOUBLE, probability);
  how.finalize();
  CudnnDescriptor& op = keep(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_RNG_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y);
  op.set(CUDNN_ATTR_OPERATION_RNG_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, how.handle());
  op.set(CUDNN_ATTR_OPERATION_RNG_SEED, CUDNN_TYPE_BACKEND_DESCRIPTOR, seed);
  op.set(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, offset);
  finish(op);
}

CudnnDescriptor& CudnnGraph::keep(cudnnBackendDescriptorType_t type) {
  kept_.push_back(std::make_unique<CudnnDescriptor>(type));
  return *kept_.back();
}

void CudnnGraph::finish(CudnnDescriptor& op) {
  op.finalize();
  operations_.push_back(op.handle());
}

}  // namespace stretto::cuda
