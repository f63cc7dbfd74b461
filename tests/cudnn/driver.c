// A CUDA driver for machines without one, as far as cuDNN needs it to make a plan: cuDNN compiles kernels for a
// described device and hands them to the driver, which accepts them here. All other calls, whose names CMake takes from
// the toolkit's libcuda, return CUDA_ERROR_STUB_LIBRARY.
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuLibraryLoadData(void** library) {
  *library = (void*)0x1000;
  return 0;
}
int cuLibraryUnload(void) { return 0; }
int cuLibraryGetKernel(void** kernel) {
  *kernel = (void*)0x2000;
  return 0;
}
int cuKernelGetFunction(void** function) {
  *function = (void*)0x3000;
  return 0;
}
int cuKernelSetAttribute(void) { return 0; }
int cuKernelGetAttribute(int* value) {
  *value = 0;
  return 0;
}
